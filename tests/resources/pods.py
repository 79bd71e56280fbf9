"""The way into a pod template."""

from penstock.resources.objects import Object


def engine_of(template: Object) -> Object:
    """Return the engine's container."""
    (container,) = template["spec"]["containers"]
    return container


def init_container(template: Object, name: str) -> Object:
    """Return the init container of a name."""
    (container,) = (entry for entry in template["spec"]["initContainers"] if entry["name"] == name)
    return container


def limiter_of(template: Object) -> Object:
    """Return the limiter's container."""
    return init_container(template, "limiter")


def environment(container: Object) -> dict[str, str]:
    """Return a container's variables that have a plain value."""
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def volume_at(template: Object, container: Object, path: str) -> Object:
    """Return the volume that a container mounts at a path."""
    (mount,) = (entry for entry in container["volumeMounts"] if entry["mountPath"] == path)
    (volume,) = (entry for entry in template["spec"]["volumes"] if entry["name"] == mount["name"])
    return volume
