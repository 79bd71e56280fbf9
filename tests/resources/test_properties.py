"""What holds whatever a backend asks for: any block of the table of fields beside any other."""

import copy
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.api.backend import LLMBackend
from penstock.api.errors import InvalidBackend
from penstock.resources import children, deployment
from penstock.resources.facts import ClusterFacts
from penstock.resources.settings import BuildSettings, Platform
from penstock.rollout.podspec import pod_spec_hash
from tests.resources import restricted
from tests.resources.fields import BASE
from tests.resources.fieldtable import FIELDS

BLOCKS = {}
for _field in FIELDS:
    _top = _field.path.partition(".")[0]
    BLOCKS.setdefault(_top, []).append(_field.with_it()[_top])

SPECS = st.fixed_dictionaries(
    {top: st.sampled_from(BLOCKS[top]) for top in BASE},
    optional={top: st.sampled_from(values) for top, values in BLOCKS.items() if top not in BASE},
)
SETTINGS = st.builds(
    BuildSettings, limiter_image=st.just("penstock:1"), drain_key=st.just(b"k" * 32), platform=st.sampled_from(Platform)
)
FACTS = st.builds(ClusterFacts, pod_monitors=st.booleans(), kubernetes_minor=st.sampled_from([None, 31, 35]))
METADATA = {"name": "smol", "namespace": "team", "uid": "11111111-2222-3333-4444-555555555555", "generation": 1}
SELECTOR = {"serving.penstock.dev/backend": "smol", "app.kubernetes.io/managed-by": "penstock"}


def parse(spec):
    """Return the backend; blocks that do not go together are left to the tests of the rules."""
    try:
        return LLMBackend.parse({"metadata": METADATA, "spec": spec})
    except InvalidBackend:
        assume(False)


def build(backend, settings, facts):
    return children.build(backend, settings, facts, deployment.template(backend, settings, facts))


def reversed_keys(value):
    """Return equal JSON, written in another order."""
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(entry) for entry in value] if isinstance(value, list) else value


def empty(value):
    """Take everything out of all lists and dictionaries of an object."""
    for entry in list(value.values() if isinstance(value, dict) else value):
        if isinstance(entry, dict | list):
            empty(entry)
    value.clear()


def values_of(value):
    """Yield every value in an object, keys included."""
    yield value
    for entry in (
        [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from values_of(entry)


@given(SPECS, SETTINGS, FACTS)
def test_equal_input_gives_equal_objects_in_whatever_order_it_is_written(spec, settings, facts):
    built = build(parse(spec), settings, facts)
    assert build(parse(reversed_keys(spec)), settings, facts) == built
    assert pod_spec_hash(parse(reversed_keys(spec))) == pod_spec_hash(parse(spec))


@given(SPECS, SETTINGS, FACTS)
def test_nothing_is_shared_between_two_builds(spec, settings, facts):
    backend = parse(spec)
    built = build(backend, settings, facts)
    kept = copy.deepcopy(built)
    for child in built:
        empty(child)
    assert build(backend, settings, facts) == kept


@given(SPECS, SETTINGS, FACTS)
def test_objects_are_plain_json_without_nulls(spec, settings, facts):
    for child in build(parse(spec), settings, facts):
        assert {type(value) for value in values_of(child)} <= {dict, list, str, int, bool}
        assert json.loads(json.dumps(child)) == child


@given(SPECS, SETTINGS, FACTS)
def test_selectors_and_names_never_depend_on_the_spec(spec, settings, facts):
    for child in build(parse(spec), settings, facts):
        assert child["metadata"]["name"] in {"smol", "smol-limiter", "smol-replicas"}
        selectors = [
            value for key in ("selector", "podSelector") if (value := child.get("spec", {}).get(key)) is not None
        ]
        assert all(selector.get("matchLabels", selector) == SELECTOR for selector in selectors)


@given(SPECS, SPECS, SETTINGS, FACTS)
def test_equal_pod_specs_have_equal_templates(one, other, settings, facts):
    """What the hash leaves out must not shape the pod, or a new pod would differ from its siblings."""
    backend, changed = parse(one), parse({**one, **{top: other[top] for top in other if top not in BASE}})
    if pod_spec_hash(backend) == pod_spec_hash(changed):
        assert deployment.template(backend, settings, facts) == deployment.template(changed, settings, facts)


@given(SPECS, SETTINGS, FACTS)
def test_a_kept_template_is_applied_whatever_a_fresh_one_would_be(spec, settings, facts):
    backend = parse(spec)
    kept = {**deployment.template(backend, settings, facts), "kept": True}
    assert children.build(backend, settings, facts, kept)[-1]["spec"]["template"] == kept


@pytest.mark.parametrize("one", [pytest.param(one, id=one.path) for one in FIELDS])
def test_each_example_meets_the_restricted_level(make_backend, template, one):
    pod = template(make_backend(**one.with_it()))["spec"]
    allowed = {"pod.securityContext.seLinuxOptions.role", "pod.securityContext.seLinuxOptions.user"}
    assert (restricted.violations(pod) == []) is (one.path not in allowed)
