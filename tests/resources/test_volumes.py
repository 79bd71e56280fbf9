"""The pod's volumes: what is mounted exists, and what exists is mounted."""

from tests.resources.pods import engine_of, volume_at


def test_every_mount_has_its_volume_and_every_volume_its_mount(make_backend, template):
    claim = {"name": "m", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}}
    extra = {"volumes": [{"name": "x", "emptyDir": {}}], "volumeMounts": [{"name": "x", "mountPath": "/x"}]}
    pod = template(make_backend("LlamaCpp", model=claim, pod=extra))["spec"]
    mounted = {
        mount["name"] for container in pod["containers"] + pod["initContainers"] for mount in container["volumeMounts"]
    }
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert mounted == set(volumes)
    assert len(volumes) == len(set(volumes))


def test_a_claim_with_the_model_is_read_only(make_backend, template):
    claim = {"name": "m", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "/sub/m.gguf"}}}
    rendered = template(make_backend(model=claim))
    engine = engine_of(rendered)
    volume = volume_at(rendered, engine, "/model")
    assert volume["persistentVolumeClaim"] == {"claimName": "c", "readOnly": True}
    (mount,) = (entry for entry in engine["volumeMounts"] if entry["name"] == volume["name"])
    assert mount["readOnly"] is True
    assert "/model/sub/m.gguf" in engine["args"]


def test_vllm_s_shared_memory_is_a_sized_ram_disk(make_backend, template):
    rendered = template(make_backend("VLLM", pod={"sharedMemoryMebibytes": 512}))
    volume = volume_at(rendered, engine_of(rendered), "/dev/shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "512Mi"}


def test_a_claim_that_the_user_mounts_too_is_one_volume(make_backend, template):
    """A kubelet never mounts the second of two volumes that are the same claim."""
    rendered = template(
        make_backend(
            model={"name": "m", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}},
            pod={
                "volumes": [{"name": "mine", "persistentVolumeClaim": {"claimName": "c"}}],
                "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
            },
        )
    )
    (volume,) = (entry for entry in rendered["spec"]["volumes"] if "persistentVolumeClaim" in entry)
    assert volume["name"] == "mine"
    mounts = [mount["mountPath"] for mount in engine_of(rendered)["volumeMounts"] if mount["name"] == "mine"]
    assert mounts == ["/model", "/mine"]
