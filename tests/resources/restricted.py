"""The Pod Security level `restricted` as a checker: every rule of the standard, said once.

After https://kubernetes.io/docs/concepts/security/pod-security-standards/, with a read-only root besides, which the
standard does not ask for.
"""

from collections.abc import Iterator

from penstock.resources.objects import Object

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
SELINUX_TYPES = {None, "", "container_engine_t", "container_init_t", "container_kvm_t", "container_t"}


def violations(pod: Object) -> list[str]:
    """Return what a pod spec breaks, each as a short sentence; empty when the level admits it."""
    return [*_pod(pod), *(text for container in _containers(pod) for text in _container(container, pod))]


def _containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", ()), *pod["containers"], *pod.get("ephemeralContainers", ())]


def _pod(pod: Object) -> Iterator[str]:
    yield from (f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field))
    context = pod.get("securityContext", {})
    yield from (f"sysctl {entry['name']}" for entry in context.get("sysctls", ()) if entry["name"] not in SYSCTLS)
    yield from _selinux(context, "pod")
    if context.get("runAsUser") == 0:
        yield "the pod runs as root"
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "the pod is a host process"
    for volume in pod.get("volumes", ()):
        yield from (f"volume {volume['name']} is a {kind}" for kind in volume.keys() - {"name"} - VOLUMES)


def _container(container: Object, pod: Object) -> Iterator[str]:
    name = container["name"]
    context = container.get("securityContext", {})
    shared = pod.get("securityContext", {})
    if context.get("privileged"):
        yield f"{name} is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may escalate"
    if context.get("runAsNonRoot", shared.get("runAsNonRoot")) is not True:
        yield f"{name} may run as root"
    if context.get("runAsUser") == 0:
        yield f"{name} runs as root"
    if context.get("seccompProfile", shared.get("seccompProfile", {})).get("type") not in {
        "RuntimeDefault",
        "Localhost",
    }:
        yield f"{name} has no seccomp profile"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield f"{name} keeps capabilities"
    yield from (f"{name} adds {added}" for added in capabilities.get("add", ()) if added != "NET_BIND_SERVICE")
    if context.get("procMount", "Default") != "Default":
        yield f"{name} has an unmasked /proc"
    yield from _selinux(context, name)
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield f"{name} takes a port of the node"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        yield from (f"{name} probes a host" for _ in [1] if container.get(probe, {}).get("httpGet", {}).get("host"))
    if context.get("readOnlyRootFilesystem") is not True:
        yield f"{name} may write to its root"


def _selinux(context: Object, name: str) -> Iterator[str]:
    options = context.get("seLinuxOptions", {})
    if options.get("type") not in SELINUX_TYPES or options.get("user") or options.get("role"):
        yield f"{name} has SELinux options of its own"
