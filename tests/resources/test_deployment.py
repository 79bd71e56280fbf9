"""The pod's shape: loopback engine, limiter as native sidecar, probes and drain through it, restricted security."""

import hashlib

import pytest

from penstock.api.replica import ReplicaSettings
from penstock.resources import deployment

ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
ENGINES = ["LlamaCpp", "VLLM"]


def template(built):
    return built["spec"]["template"]["spec"]


def engine_of(built):
    (container,) = template(built)["containers"]
    return container


def limiter_of(built):
    (container,) = template(built)["initContainers"]
    return container


@pytest.mark.parametrize("engine", ENGINES)
def test_the_pod_meets_the_restricted_level_with_a_read_only_root(make_backend, settings, engine):
    pod = template(deployment.build(make_backend(engine), settings))
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for volume in pod["volumes"]:
        assert (volume.keys() - {"name"}) <= ALLOWED_VOLUMES
    for container in [*pod["containers"], *pod["initContainers"]]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["readOnlyRootFilesystem"] is True
        assert all("hostPort" not in port for port in container.get("ports", []))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_pod_has_no_token_and_no_service_links(make_backend, settings, engine):
    pod = template(deployment.build(make_backend(engine), settings))
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["serviceAccountName"] == "smol"


def test_the_limiter_is_a_native_sidecar_and_tools_show_the_engine_first(make_backend, settings):
    built = deployment.build(make_backend(), settings)
    assert limiter_of(built)["restartPolicy"] == "Always"
    annotations = built["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"kubectl.kubernetes.io/default-container": "engine"}


def test_all_probes_and_the_hook_go_to_the_limiters_admin_port_by_number(make_backend, settings):
    built = deployment.build(make_backend(), settings)
    engine, limiter = engine_of(built), limiter_of(built)
    hooks = {
        "/engine/started": engine["startupProbe"],
        "/engine/alive": engine["livenessProbe"],
        "/drain": engine["lifecycle"]["preStop"],
        "/readyz": limiter["readinessProbe"],
        "/healthz": limiter["livenessProbe"],
    }
    for path, hook in hooks.items():
        assert (hook["httpGet"]["path"], hook["httpGet"]["port"]) == (path, 9901)


def test_readiness_adds_no_delay_of_its_own(make_backend, settings):
    built = deployment.build(make_backend(health={"startupTimeoutSeconds": 90}), settings)
    startup, readiness = engine_of(built)["startupProbe"], limiter_of(built)["readinessProbe"]
    assert (startup["periodSeconds"], startup["failureThreshold"]) == (1, 90)
    assert (readiness["periodSeconds"], readiness["failureThreshold"], readiness["successThreshold"]) == (1, 1, 1)


def test_a_failed_probe_does_not_wait_for_a_drain_that_cannot_end(make_backend, settings):
    built = deployment.build(make_backend(), settings)
    assert engine_of(built)["startupProbe"]["terminationGracePeriodSeconds"] == 10
    assert engine_of(built)["livenessProbe"]["terminationGracePeriodSeconds"] == 10
    assert limiter_of(built)["livenessProbe"]["terminationGracePeriodSeconds"] == 5


def test_a_restarting_limiter_does_not_cost_the_engine_its_model(make_backend, settings):
    liveness = engine_of(deployment.build(make_backend(), settings))["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 120


def test_the_hook_carries_the_token_and_the_limiter_only_its_hash(make_backend, settings):
    built = deployment.build(make_backend(), settings)
    (header,) = engine_of(built)["lifecycle"]["preStop"]["httpGet"]["httpHeaders"]
    assert header["name"] == "x-penstock-drain-token"
    environment = {entry["name"]: entry["value"] for entry in limiter_of(built)["env"]}
    sha256 = hashlib.sha256(header["value"].encode()).hexdigest()
    assert environment["PENSTOCK_DRAIN_TOKEN_SHA256"] == sha256
    assert header["value"] not in environment.values()


def test_two_backends_have_two_tokens(settings):
    assert settings.drain_token("a") != settings.drain_token("b")
    assert settings.drain_token("a") == settings.drain_token("a")


@pytest.mark.parametrize(
    ("engine", "drain", "expected"),
    [
        ("LlamaCpp", {}, 10 + 300 + 5 + 10),
        ("LlamaCpp", {"lameDuckSeconds": 0, "timeoutSeconds": 0}, 0 + 0 + 5 + 10),
        ("VLLM", {"lameDuckSeconds": 5, "timeoutSeconds": 60}, 5 + 60 + 20 + 10),
    ],
    ids=["llama.cpp with defaults", "llama.cpp at once", "vLLM"],
)
def test_the_grace_period_is_the_sum_of_what_leaving_may_take(make_backend, settings, engine, drain, expected):
    built = deployment.build(make_backend(engine, drain=drain), settings)
    assert template(built)["terminationGracePeriodSeconds"] == expected


def test_the_progress_deadline_leaves_room_for_start_and_drain(make_backend, settings):
    built = deployment.build(make_backend(), settings)
    budget = engine_of(built)["startupProbe"]["failureThreshold"]
    assert built["spec"]["progressDeadlineSeconds"] > budget + template(built)["terminationGracePeriodSeconds"]


def test_a_new_replica_is_ready_before_an_old_one_goes(make_backend, settings):
    strategy = deployment.build(make_backend(), settings)["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_the_limiter_reads_back_what_the_builder_wrote(make_backend, settings):
    backend = make_backend(drain={"lameDuckSeconds": 3, "timeoutSeconds": 4})
    limiter = limiter_of(deployment.build(backend, settings))
    read = ReplicaSettings.from_env({entry["name"]: entry["value"] for entry in limiter["env"]})
    assert (read.backend_name, read.backend_namespace) == ("smol", "team")
    assert read.served_names == ("smollm2",)
    assert (read.lame_duck_seconds, read.drain_timeout_seconds) == (3, 4)
    assert read.max_concurrency == 4


@pytest.mark.parametrize(
    ("spec", "image"), [({}, "penstock:1"), ({"limiter": {"image": "own:2"}}, "own:2")], ids=["operator's", "own"]
)
def test_the_limiter_s_image(make_backend, settings, spec, image):
    assert limiter_of(deployment.build(make_backend(**spec), settings))["image"] == image


def test_only_llama_cpp_shares_the_process_namespace(make_backend, settings):
    assert template(deployment.build(make_backend("LlamaCpp"), settings))["shareProcessNamespace"] is True
    assert "shareProcessNamespace" not in template(deployment.build(make_backend("VLLM"), settings))


def test_the_engine_listens_on_loopback_and_exposes_no_port(make_backend, settings):
    engine = engine_of(deployment.build(make_backend(), settings))
    assert engine["args"][engine["args"].index("--host") + 1] == "127.0.0.1"
    assert "ports" not in engine


def test_vllm_gets_its_command_and_llama_cpp_keeps_its_entry_point(make_backend, settings):
    assert engine_of(deployment.build(make_backend("VLLM"), settings))["command"] == ["vllm", "serve"]
    assert "command" not in engine_of(deployment.build(make_backend("LlamaCpp"), settings))


def test_every_mount_has_its_volume_and_every_volume_its_mount(make_backend, settings):
    claim = {"name": "m", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}}
    extra = {"volumes": [{"name": "x", "emptyDir": {}}], "volumeMounts": [{"name": "x", "mountPath": "/x"}]}
    built = deployment.build(make_backend("LlamaCpp", model=claim, pod=extra), settings)
    mounted = {mount["name"] for mount in engine_of(built)["volumeMounts"] + limiter_of(built)["volumeMounts"]}
    volumes = [volume["name"] for volume in template(built)["volumes"]]
    assert mounted == set(volumes)
    assert len(volumes) == len(set(volumes))


def test_a_claim_with_the_model_is_read_only(make_backend, settings):
    claim = {"name": "m", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "/sub/m.gguf"}}}
    built = deployment.build(make_backend(model=claim), settings)
    (volume,) = (entry for entry in template(built)["volumes"] if "persistentVolumeClaim" in entry)
    assert volume["persistentVolumeClaim"] == {"claimName": "c", "readOnly": True}
    (mount,) = (entry for entry in engine_of(built)["volumeMounts"] if entry["name"] == volume["name"])
    assert mount["readOnly"] is True
    assert mount["mountPath"] + "/sub/m.gguf" in engine_of(built)["args"]


def test_vllm_s_shared_memory_is_a_sized_ram_disk(make_backend, settings):
    built = deployment.build(make_backend("VLLM", pod={"sharedMemoryMebibytes": 512}), settings)
    (mount,) = (entry for entry in engine_of(built)["volumeMounts"] if entry["mountPath"] == "/dev/shm")
    (volume,) = (entry for entry in template(built)["volumes"] if entry["name"] == mount["name"])
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "512Mi"}


def test_the_selector_has_two_fixed_labels_that_the_pods_carry(make_backend, settings):
    spec = deployment.build(make_backend(), settings)["spec"]
    selector = spec["selector"]["matchLabels"]
    assert selector == {"serving.penstock.dev/backend": "smol", "app.kubernetes.io/managed-by": "penstock"}
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()


def test_a_policy_change_does_not_touch_the_workload(make_backend, settings):
    quiet, loud = (make_backend(limiter={"logLevel": level}) for level in ("Info", "Debug"))
    assert deployment.build(quiet, settings) == deployment.build(loud, settings)


def test_a_claim_that_the_user_mounts_too_is_one_volume(make_backend, settings):
    """A kubelet never mounts the second of two volumes that are the same claim."""
    built = deployment.build(
        make_backend(
            model={"name": "m", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}},
            pod={
                "volumes": [{"name": "mine", "persistentVolumeClaim": {"claimName": "c"}}],
                "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
            },
        ),
        settings,
    )
    (volume,) = (entry for entry in template(built)["volumes"] if "persistentVolumeClaim" in entry)
    assert volume["name"] == "mine"
    mounts = [mount["mountPath"] for mount in engine_of(built)["volumeMounts"] if mount["name"] == "mine"]
    assert mounts == ["/model", "/mine"]
