"""Which template a backend runs, what its history is called and numbered, what of it is kept, what is ignored."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.rollout.revisions import (
    KEPT,
    Choice,
    Revision,
    choose,
    is_upgrade,
    kept,
    make,
    read,
    use,
)

OWNER = "uid-1"


def revision(pod_spec="A", renderer="r1", *, number=0, content=""):
    template = {"spec": {"containers": [{"name": "engine", "image": content or f"{pod_spec}-{renderer}"}]}}
    made = make("smol", pod_spec=pod_spec, renderer=renderer, template=template)
    return Revision(**{**made.__dict__, "number": number})


def stored_as(one, *, owner=OWNER):
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": one.name,
            "namespace": "team",
            "ownerReferences": [{"kind": "LLMBackend", "name": "smol", "uid": owner, "controller": True}],
        },
        "revision": one.number,
        "data": {"podSpec": one.pod_spec, "renderer": one.renderer, "template": copy.deepcopy(one.template)},
    }


A1 = revision("A", "r1", number=1)
B1 = revision("B", "r1", number=2)
A2 = revision("A", "r2", number=3)
A_NEW = revision("A", "r2")
C_NEW = revision("C", "r2")

CHOICES = [
    pytest.param("C", [], "", False, C_NEW, Choice(revision=C_NEW), id="nothing stored: fresh"),
    pytest.param("C", [A1], A1.name, False, C_NEW, Choice(revision=C_NEW), id="a new spec: fresh"),
    pytest.param("A", [A1], A1.name, False, A_NEW, Choice(revision=A1), id="an unchanged spec: what runs"),
    pytest.param("A", [A1, B1], B1.name, False, A_NEW, Choice(revision=A1), id="back to a former spec: what it had"),
    pytest.param("A", [A1, A2], A1.name, False, A_NEW, Choice(revision=A1), id="two for this spec: the one that runs"),
    pytest.param("A", [A1, A2, B1], B1.name, False, A_NEW, Choice(revision=A2), id="back, with two: the one used last"),
    pytest.param("A", [A1], "", False, A_NEW, Choice(revision=A1), id="unknown what runs: the one used last"),
    pytest.param("C", [A1], A1.name, True, C_NEW, Choice(revision=C_NEW), id="Rolling, a new spec: fresh, at once"),
    pytest.param(
        "A", [A1], A1.name, True, A_NEW, Choice(revision=A1, upgrade=A_NEW), id="Rolling, rendered unlike: in its turn"
    ),
    pytest.param("A", [A1], "", True, A_NEW, Choice(revision=A1, upgrade=A_NEW), id="Rolling, unknown what runs: same"),
    pytest.param("A", [A2], A2.name, True, A_NEW, Choice(revision=A2), id="Rolling, rendered alike: what runs"),
    pytest.param(
        "A", [A1, A2], A1.name, True, A_NEW, Choice(revision=A1, upgrade=A2), id="Rolling, stored already: that one"
    ),
    pytest.param("A", [A1, B1], B1.name, True, A_NEW, Choice(revision=A_NEW), id="Rolling, back: fresh, one roll"),
    pytest.param("A", [A2, B1], B1.name, True, A_NEW, Choice(revision=A2), id="Rolling, back, alike: the stored one"),
]


@pytest.mark.parametrize(("pod_spec", "stored", "running", "rolling", "fresh", "expected"), CHOICES)
def test_choice(pod_spec, stored, running, rolling, fresh, expected):
    assert choose(pod_spec, stored, running=running, rolling=rolling, fresh=lambda: fresh) == expected


def test_nothing_is_rendered_while_nothing_fresh_can_be_wanted():
    def fresh():
        raise AssertionError("rendered")

    choose("A", [A1], running=A1.name, rolling=False, fresh=fresh)


def test_a_name_says_what_the_revision_holds():
    assert revision("A").name == revision("A").name
    assert revision("A").name.startswith("smol-")
    assert len(revision("A").name) == len("smol-") + 10
    assert len({revision("A").name, revision("B", content="A-r1").name, revision("A", content="x").name}) == 3


def test_the_order_of_keys_in_a_template_does_not_change_its_name():
    one = make("smol", pod_spec="A", renderer="r", template={"metadata": {}, "spec": {"a": 1, "b": 2}})
    other = make("smol", pod_spec="A", renderer="r", template={"spec": {"b": 2, "a": 1}, "metadata": {}})
    assert one.name == other.name


def test_revisions_are_read_back_as_they_were_stored_in_the_order_of_use():
    objects = [stored_as(one) for one in (A2, A1, B1)]
    assert read(objects, backend="smol", owner_uid=OWNER) == ([A1, B1, A2], [])


def damaged(**changes):
    obj = stored_as(A1)
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = obj
        for parent in parents:
            target = target[parent]
        target[last] = value
    return obj


DAMAGED = {
    "no data": damaged(data=None),
    "data that is text": damaged(data="x"),
    "no spec hash": damaged(data__podSpec=None),
    "a renderer that is none": damaged(data__renderer=3),
    "no template": damaged(data__template=None),
    "an empty template": damaged(data__template={}),
    "a pod that is none": damaged(data__template={"spec": []}),
    "no containers": damaged(data__template={"spec": {"containers": []}}),
    "a number that is none": damaged(revision="x"),
    "an edited template": damaged(data__template={"spec": {"containers": [{"name": "engine", "image": "evil"}]}}),
    "an edited spec hash": damaged(data__podSpec="B"),
    "on its way out": damaged(metadata__deletionTimestamp="2026-01-01T00:00:00Z"),
}


@pytest.mark.parametrize("obj", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_revision_is_ignored_with_a_reason(obj):
    revisions, ignored = read([obj, stored_as(B1)], backend="smol", owner_uid=OWNER)
    assert revisions == [B1]
    assert [(one.name, one.ours) for one in ignored] == [(A1.name, True)]
    assert ignored[0].reason


def test_the_history_of_another_is_ignored_and_is_not_ours():
    revisions, ignored = read([stored_as(A1, owner="uid-2")], backend="smol", owner_uid=OWNER)
    assert revisions == []
    assert [one.ours for one in ignored] == [False]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["podSpec", "renderer", "template", "spec", "containers"]), inner, max_size=4)
    ),
)


@given(JSON, JSON)
def test_no_data_whatever_breaks_the_reading(data, number):
    revisions, ignored = read([damaged(data=data, revision=number)], backend="smol", owner_uid=OWNER)
    assert len(revisions) + len(ignored) == 1


NUMBERS = [
    pytest.param(C_NEW, [], 1, id="the first"),
    pytest.param(C_NEW, [A1, B1], 3, id="a new one"),
    pytest.param(B1, [A1, B1], 2, id="the one used last keeps its number"),
    pytest.param(A1, [A1, B1], 3, id="an earlier one that is used again"),
    pytest.param(revision("A", "r1"), [A1, B1], 3, id="the same, made anew"),
]


@pytest.mark.parametrize(("used", "stored", "number"), NUMBERS)
def test_numbers_tell_the_order_of_use(used, stored, number):
    assert use(used, stored).number == number
    assert use(used, stored).name == used.name


def test_using_a_stored_revision_keeps_what_is_stored_of_it():
    read_back = revision("A", "", content="A-r1")
    assert use(read_back, [A1, B1]).renderer == "r1"


MANY = [revision(str(number), number=number) for number in range(1, 10)]


def test_the_last_used_are_kept_and_the_current_one_is_among_them():
    assert kept(MANY, current=MANY[-1].name, running=()) == {one.name for one in MANY[-KEPT:]}
    assert kept(MANY, current="new", running=()) == {"new", *(one.name for one in MANY[-KEPT + 1 :])}


def test_what_runs_is_kept_however_old_it_is():
    names = kept(MANY, current=MANY[-1].name, running={MANY[0].name, "unheard of"})
    assert names == {MANY[0].name, *(one.name for one in MANY[-KEPT:])}


def test_an_old_one_that_is_current_again_is_kept():
    names = kept(MANY, current=MANY[0].name, running=())
    assert names == {MANY[0].name, *(one.name for one in MANY[-KEPT + 1 :])}


UPGRADES = [
    pytest.param(A1.name, [A1], False, id="the first one"),
    pytest.param(B1.name, [A1, B1], False, id="after another spec"),
    pytest.param(A2.name, [A1, A2], True, id="after one for the same spec"),
    pytest.param(A2.name, [A1, B1, A2], False, id="back to a former spec"),
    pytest.param("smol-gone", [A1, A2], False, id="unknown"),
]


@pytest.mark.parametrize(("name", "stored", "expected"), UPGRADES)
def test_an_upgrade_is_what_replaced_a_template_of_the_same_spec(name, stored, expected):
    assert is_upgrade(name, stored) is expected


class History:
    """One backend over its life: what the cluster keeps, and how often its pods were replaced."""

    def __init__(self):
        self.stored, self.running, self.rolls = [], None, 0

    def reconcile(self, spec, release, *, rolling, permitted):
        fresh = revision(spec, release)
        name = self.running.name if self.running else ""
        choice = choose(spec, self.stored, running=name, rolling=rolling, fresh=lambda: fresh)
        target = choice.upgrade if choice.upgrade and permitted else choice.revision
        target = use(target, self.stored)
        names = kept(self.stored, current=target.name, running={name})
        remaining = [one for one in self.stored if one.name in names and one.name != target.name]
        self.stored = sorted([*remaining, target], key=lambda one: one.number)
        rolled = self.running is not None and self.running.template != target.template
        self.running = target
        return rolled


LIFE = st.lists(
    st.tuples(st.sampled_from("ABC"), st.sampled_from(["r1", "r2", "r3"]), st.booleans(), st.booleans()), max_size=25
)


@given(LIFE)
def test_pods_are_replaced_for_a_changed_spec_or_a_permitted_upgrade_and_for_nothing_else(life):
    history, before = History(), None
    for spec, release, rolling, permitted in life:
        rendered = history.running.renderer if history.running else release
        rolled = history.reconcile(spec, release, rolling=rolling, permitted=permitted)
        changed = before is not None and spec != before
        upgraded = before == spec and rolling and permitted and rendered != release
        assert rolled == (changed or upgraded)
        assert history.running.pod_spec == spec
        assert history.stored[-1] == history.running
        assert len(history.stored) <= KEPT + 1
        before = spec
