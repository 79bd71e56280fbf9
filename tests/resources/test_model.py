"""Wherever the weights come from, the engine's command line names the path at which they are mounted."""

import pytest

from penstock.resources import model
from tests.resources.pods import engine_of, volume_at

CLAIM = {"persistentVolumeClaim": {"claimName": "c", "path": "/sub/m.gguf"}}
IMAGE = {"image": {"reference": "registry.example/m:1", "path": "/sub/m.gguf"}}
HUB = {"huggingFace": {"repository": "o/m", "file": "sub/m.gguf"}}


@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
@pytest.mark.parametrize(
    ("source", "volume"),
    [
        (CLAIM, {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}),
        (IMAGE, {"image": {"reference": "registry.example/m:1"}}),
        (HUB, {"emptyDir": {}}),
    ],
    ids=["a claim", "an image", "the hub"],
)
def test_the_engine_loads_from_where_the_model_is_mounted(make_backend, template, engine, source, volume):
    rendered = template(make_backend(engine, model={"name": "m", "source": source}))
    container = engine_of(rendered)
    assert "/model/sub/m.gguf" in container["args"]
    mounted = volume_at(rendered, container, "/model")
    assert {key: value for key, value in mounted.items() if key != "name"} == volume
    (mount,) = (entry for entry in container["volumeMounts"] if entry["mountPath"] == "/model")
    assert mount["readOnly"] is True


def test_a_model_in_the_engine_image_needs_no_volume(make_backend, template):
    rendered = template(make_backend(model={"name": "m", "source": {"baked": {"path": "/models/m.gguf"}}}))
    assert model.volumes(make_backend()) == []
    assert "/models/m.gguf" in engine_of(rendered)["args"]


def test_only_a_download_adds_an_init_container_and_it_runs_first(make_backend, template):
    names = {
        kind: [
            entry["name"]
            for entry in template(make_backend(model={"name": "m", "source": source}))["spec"]["initContainers"]
        ]
        for kind, source in {"claim": CLAIM, "image": IMAGE, "hub": HUB}.items()
    }
    assert names == {"claim": ["limiter"], "image": ["limiter"], "hub": ["download", "limiter"]}
