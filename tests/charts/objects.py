"""Where the chart is, and the few questions asked of what is rendered from it."""

from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "charts" / "penstock"

Object = dict[str, Any]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [obj for obj in objects if obj["kind"] == kind]


def container_of(objects: list[Object]) -> Object:
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container
