"""What building the package does beside copying files: the limiter's lanes are compiled (`scripts/native.py`)."""

from __future__ import annotations

import importlib.util
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "penstock/limiter/liblanes.so.1"


class LanesHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled library into the wheel, which thereby is for one kind of machine, and for any Python.

    Where there is no compiler the wheel is for any machine; its limiter serves, at a higher price.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install gets the library beside its source."""
        native = self._native()
        if not sysconfig.get_platform().startswith("linux"):
            return
        self._folder = tempfile.TemporaryDirectory()
        target = native.LIBRARY if version == "editable" else Path(self._folder.name) / native.LIBRARY.name
        try:
            native.build(target)
        except native.NativeBuildError as error:
            self.app.display_warning(f"penstock: its limiter will relay in Python only: {error}")
            return
        if version != "editable":
            build_data["force_include"][str(target)] = PLACE
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Forget the compiled file."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def dependencies(self) -> list[str]:
        """Return the Python package that brings a compiler, where the machine has none."""
        native = self._native()
        return [] if native.compiler() else [native.requirement()]

    def _native(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location("native", Path(self.root) / "scripts" / "native.py")
        assert spec is not None  # noqa: S101 - the file is there
        assert spec.loader is not None  # noqa: S101 - as above
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
