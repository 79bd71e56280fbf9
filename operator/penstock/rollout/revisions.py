"""Bookkeeping of the pod templates that a backend has run, as ControllerRevisions keep them.

Theory of operation. A revision is a template together with the hash of the spec it was rendered for. While that hash
stays, the revision that runs stays; a release of Penstock that would render another template changes nothing. A spec
that goes back to an earlier hash gets that revision back, template and all.

    spec's hash    upgrade policy   fresh template     what runs next
    as it was      OnSpecChange     any                what runs
    as it was      Rolling          rendered alike     what runs
    as it was      Rolling          rendered unlike    what runs, until it is this backend's turn; then the fresh one
    known          OnSpecChange     any                the stored one, the one used last if there are several
    known          Rolling          any                the stored one if rendered alike, else the fresh one
    new            any              any                the fresh one

`renderer` tells alike from unlike. It is the hash of the template as rendered with a fixed drain key, so another drain
key never counts as a difference. Numbers say in which order revisions were used, not made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.resources.digest import digest
from penstock.resources.objects import Object, is_controlled_by, is_terminating

KEPT = 5
"""Revisions kept per backend, the one that runs included."""

NAME_DIGITS = 10
RENDERER_DIGITS = 16

UNKNOWN_RENDERER = ""
"""Of a template that was found without a history: it counts as rendered unlike any other."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A pod template and what it was made from.

    Attributes:
        name: Of the ControllerRevision; says what it holds, so the same content always has the same name.
        number: Rises with every use of another revision; 0 before the first use.
        pod_spec: Hash of the spec the template was rendered for, see `podspec`.
        renderer: Hash of how it was rendered, see above.
        template: The pod template, exactly as it is applied.
    """

    name: str
    number: int
    pod_spec: str
    renderer: str
    template: Object

    @property
    def made_from(self) -> str:
        """Both hashes in one text, for the Deployment."""
        return f"{self.pod_spec}.{self.renderer}"


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """A ControllerRevision that cannot be used.

    Attributes:
        name: Its name.
        reason: Why, for people.
        ours: Whether it belongs to the backend all the same, so that it may be deleted.
    """

    name: str
    reason: str
    ours: bool


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a backend runs.

    Attributes:
        revision: What to run now.
        upgrade: What to run instead once it is this backend's turn; None when there is nothing to wait for.
    """

    revision: Revision
    upgrade: Revision | None = None


def make(backend: str, *, pod_spec: str, renderer: str, template: Object) -> Revision:
    """Return a revision that has not been used yet.

    Args:
        backend: The backend's name, with which the revision's begins.
        pod_spec: See `Revision`.
        renderer: See `Revision`.
        template: See `Revision`.
    """
    name = f"{backend}-{digest([pod_spec, template], NAME_DIGITS)}"
    return Revision(name=name, number=0, pod_spec=pod_spec, renderer=renderer, template=template)


def read(objects: Iterable[Object], *, backend: str, owner_uid: str) -> tuple[list[Revision], list[Ignored]]:
    """Return the usable revisions, the one used last at the end, and those that are not usable.

    Args:
        objects: ControllerRevisions.
        backend: The backend's name.
        owner_uid: Its uid: what another object controls is not its history.
    """
    revisions: list[Revision] = []
    ignored: list[Ignored] = []
    for obj in objects:
        name = str(obj["metadata"]["name"])
        ours = is_controlled_by(obj, owner_uid)
        if not ours:
            ignored.append(Ignored(name=name, reason="it belongs to another object", ours=False))
        elif is_terminating(obj):
            ignored.append(Ignored(name=name, reason="it is being deleted", ours=True))
        elif isinstance(revision := _parse(obj, backend), Revision):
            revisions.append(revision)
        else:
            ignored.append(Ignored(name=name, reason=revision, ours=True))
    return sorted(revisions, key=lambda revision: (revision.number, revision.name)), ignored


def choose(
    pod_spec: str,
    stored: Sequence[Revision],
    *,
    running: str,
    rolling: bool,
    fresh: Callable[[], Revision],
) -> Choice:
    """Return what a backend runs, by the table above.

    Args:
        pod_spec: Hash of the spec as it is now.
        stored: The usable revisions as `read` returns them.
        running: Name of the revision that the Deployment was given last; when no stored one has it, the one used last
            is taken to be running.
        rolling: Whether the upgrade policy is `Rolling`.
        fresh: Renders the template as this release does.
    """
    here = next((one for one in stored if one.name == running), stored[-1] if stored else None)
    alike = [one for one in stored if one.pod_spec == pod_spec]
    if not alike:
        return Choice(revision=fresh())
    stays = here if here in alike else None
    if not rolling:
        return Choice(revision=stays or alike[-1])
    new = fresh()
    if stays is not None and stays.renderer == new.renderer:
        return Choice(revision=stays)
    target = next((one for one in reversed(alike) if one.renderer == new.renderer), new)
    return Choice(revision=target) if stays is None else Choice(revision=stays, upgrade=target)


def use(revision: Revision, stored: Sequence[Revision]) -> Revision:
    """Return the revision with its number: above all others, and unchanged when it already is."""
    same = next((one for one in stored if one.name == revision.name), None)
    others = max((one.number for one in stored if one.name != revision.name), default=0)
    if same is not None and same.number > others:
        return same
    return replace(same or revision, number=others + 1)


def kept(stored: Sequence[Revision], *, current: str, running: Collection[str], limit: int = KEPT) -> frozenset[str]:
    """Return the names of the stored revisions to keep: the last used ones, and what may still run.

    Args:
        stored: The usable revisions, as `read` returns them.
        current: Name of the revision that is applied now, stored already or not; it counts.
        running: Names of others that pods may run, or that may be gone back to.
        limit: How many are kept in all; what runs is kept beyond that too.
    """
    earlier = [one.name for one in stored if one.name != current]
    newest = earlier[max(0, len(earlier) - (limit - 1)) :]
    return frozenset({*newest, *(name for name in earlier if name in running), current})


def is_upgrade(name: str, stored: Sequence[Revision]) -> bool:
    """Tell whether a revision replaced one for the same spec: then Penstock's release was the reason, not its user."""
    position = next((index for index, one in enumerate(stored) if one.name == name), 0)
    return position > 0 and stored[position - 1].pod_spec == stored[position].pod_spec


def _parse(obj: Object, backend: str) -> Revision | str:
    """Return the revision that an object holds, or why it holds none."""
    data = obj.get("data")
    if not isinstance(data, dict):
        return "it holds no data"
    pod_spec, renderer, template = data.get("podSpec"), data.get("renderer", UNKNOWN_RENDERER), data.get("template")
    if not isinstance(pod_spec, str) or not isinstance(renderer, str):
        return "it does not say what its template was made from"
    if not isinstance(template, dict) or not _has_containers(template):
        return "it holds no pod template"
    number = obj.get("revision", 0)
    if not isinstance(number, int) or isinstance(number, bool):
        return "its number is none"
    revision = make(backend, pod_spec=pod_spec, renderer=renderer, template=template)
    if revision.name != obj["metadata"]["name"]:
        return "its content is not what its name says"
    return replace(revision, number=number)


def _has_containers(template: dict[str, Any]) -> bool:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and bool(containers)
