"""Every pod meets the level `restricted`, and the checker that says so can say no."""

import copy

import pytest

from tests.resources import restricted


@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
def test_the_pod_meets_the_restricted_level_with_a_read_only_root(make_backend, template, engine):
    assert restricted.violations(template(make_backend(engine))["spec"]) == []


@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
def test_user_and_group_are_named(make_backend, template, engine):
    pod = template(make_backend(engine))["spec"]
    for container in pod["containers"] + pod["initContainers"]:
        assert container["securityContext"]["runAsUser"] > 0
        assert container["securityContext"]["runAsGroup"] > 0
    assert pod["securityContext"]["fsGroup"] > 0


BREACHES = {
    "the node's network": lambda pod: pod.update(hostNetwork=True),
    "a host path": lambda pod: pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    "root": lambda pod: pod["containers"][0]["securityContext"].update(runAsUser=0),
    "root by default": lambda pod: [
        part.get("securityContext", {}).pop("runAsNonRoot") for part in [pod, *pod["containers"]]
    ],
    "escalation": lambda pod: pod["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
    "privileges": lambda pod: pod["initContainers"][0]["securityContext"].update(privileged=True),
    "capabilities": lambda pod: pod["initContainers"][0]["securityContext"].pop("capabilities"),
    "an added capability": lambda pod: pod["containers"][0]["securityContext"]["capabilities"].update(
        add=["SYS_PTRACE"]
    ),
    "no seccomp profile": lambda pod: pod["securityContext"].pop("seccompProfile"),
    "a port of the node": lambda pod: pod["initContainers"][0]["ports"][0].update(hostPort=80),
    "a writable root": lambda pod: pod["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False),
    "a sysctl": lambda pod: pod["securityContext"].update(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "SELinux options": lambda pod: pod["securityContext"].update(seLinuxOptions={"type": "spc_t"}),
    "an unmasked /proc": lambda pod: pod["containers"][0]["securityContext"].update(procMount="Unmasked"),
    "a probed host": lambda pod: pod["containers"][0]["livenessProbe"]["httpGet"].update(host="192.0.2.1"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_the_checker_sees(make_backend, template, breach):
    pod = copy.deepcopy(template(make_backend())["spec"])
    BREACHES[breach](pod)
    assert restricted.violations(pod)
