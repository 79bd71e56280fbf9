"""What keeps a child from being applied: its place is not free yet, or somebody must do something first."""

from __future__ import annotations

from penstock.api.conditions import Reason
from penstock.kube.errors import Forbidden
from penstock.kube.kinds import LLM_BACKEND, Kind
from penstock.resources.objects import Key, Object, controller_of, is_controlled_by, is_terminating, key_of
from penstock.status.trouble import Trouble


class Blocked(Exception):  # noqa: N818 - a result that ends the pass early
    """A child cannot be applied.

    Attributes:
        trouble: Why, for status.
        retry: Whether growing delays should follow; else a slow, steady look is enough.
    """

    def __init__(self, trouble: Trouble, *, retry: bool) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble
        self.retry = retry


class Gone(Exception):  # noqa: N818 - likewise
    """A child vanished or is on its way out; its place will be free in a moment, as a rule."""

    @property
    def trouble(self) -> Trouble:
        """What to say if that moment does not come."""
        return Trouble(reason=Reason.NAME_TAKEN, message=str(self))


def check_free(owner_uid: str, backend: Key, kind: Kind, held: Object) -> None:
    """Refuse to touch an object that is not the backend's own, or is being deleted.

    Raises:
        Gone: It goes, or it belongs to an earlier backend of the same name and the garbage collector will take it.
        Blocked: It belongs to somebody else.
    """
    name = key_of(held).name
    if is_controlled_by(held, owner_uid):
        if is_terminating(held):
            raise Gone(_going(kind, held))
        return
    controller = controller_of(held)
    # The names of children are made from that of their backend, so those of two backends can meet.
    if controller is not None and _is_backend(controller) and controller["name"] == backend.name:
        raise Gone(f"{kind} {name} still belongs to an earlier LLMBackend of this name, and goes with it")
    owner = f"belongs to {_named(controller)}" if controller is not None else "was not made by Penstock"
    message = (
        f"{kind} {name} exists and {owner}; it is left alone. Delete or rename it, or give the backend another name"
    )
    raise Blocked(Trouble(reason=Reason.NAME_TAKEN, message=message, stalled=True), retry=False)


def forbidden(kind: Kind, key: Key, error: Forbidden) -> Trouble:
    """Return why a child may not be written: a quota, a missing right or a policy."""
    if "exceeded quota" in error.server_message:
        message = f"a ResourceQuota leaves no room for {kind} {key.name}: {error.server_message}"
        return Trouble(reason=Reason.QUOTA_EXCEEDED, message=message)
    hint = "; grant the operator this permission" if error.missing_rule else ""
    message = f"{kind} {key.name} may not be applied: {error.server_message}{hint}"
    return Trouble(reason=Reason.CHILDREN_REFUSED, message=message)


def _going(kind: Kind, held: Object) -> str:
    finalizers = held["metadata"].get("finalizers")
    holds = f", and something holds it: finalizers {', '.join(map(str, finalizers))}" if finalizers else ""
    return f"{kind} {key_of(held).name} is being deleted{holds}; it is made anew when it has gone"


def _named(controller: Object) -> str:
    name = f"{controller['kind']} {controller['name']}"
    # The same kind in another group would read like the backend itself.
    return name if controller["kind"] != LLM_BACKEND.name else f"{name} of {controller['apiVersion']}"


def _is_backend(controller: Object) -> bool:
    # Any version of the group: children may have been made by another release.
    group = str(controller.get("apiVersion", "")).partition("/")[0]
    return (group, controller.get("kind")) == (LLM_BACKEND.group, LLM_BACKEND.name)
