"""Fields of the limiter's container, of the children around the pods, and of what the operator itself does."""

from tests.resources.effects import ABSENT, MADE
from tests.resources.fields import NOWHERE, Field

LIMITER = (
    Field(path="limiter.image", value="own:2", where="limiter: image", rolls=True),
    Field(path="limiter.resources.requests{}", value={"cpu": "1"}, where="limiter: resources.requests", rolls=True),
    Field(path="limiter.resources.limits{}", value={"memory": "1Gi"}, where="limiter: resources.limits", rolls=True),
    Field(
        path="admission.sharedStore.redis.secretRef.name",
        value="other",
        instead="s",
        where="pod: volumes[name=penstock-store].secret.secretName",
        rolls=True,
    ),
    Field(
        path="admission.sharedStore.redis.secretRef.key",
        value="other",
        within={"admission": {"sharedStore": {"redis": {"secretRef": {"name": "s"}}}}},
        where="pod: volumes[name=penstock-store].secret.items[0].key",
        rolls=True,
    ),
    Field(
        path="tenants.keysSecretRef.name",
        value="other",
        instead="s",
        within={"tenants": {}},
        where="pod: volumes[name=penstock-tenants].secret.secretName",
        rolls=True,
    ),
    Field(
        path="health.startupTimeoutSeconds",
        value=90,
        where="engine: startupProbe.failureThreshold",
        rolls=True,
    ),
    Field(
        path="drain.lameDuckSeconds",
        value=3,
        where="limiter variable: PENSTOCK_LAME_DUCK_SECONDS",
        expected="3",
        rolls=True,
    ),
    Field(
        path="drain.timeoutSeconds",
        value=60,
        where="pod: terminationGracePeriodSeconds",
        expected=10 + 60 + 5 + 10,
        rolls=True,
    ),
)

AROUND = (
    Field(path="replicas", value=3, where="Deployment: spec.replicas", rolls=False),
    Field(path="suspend", value=True, where="Deployment: spec.replicas", expected=0, rolls=False),
    Field(
        path="service.port",
        value=8080,
        where="Service: spec.ports[0].port",
        rolls=False,
    ),
    Field(path="service.type", value="NodePort", where="Service: spec.type", rolls=False),
    Field(
        path="service.annotations{}",
        value={"example.com/internal": "true"},
        where="Service: metadata.annotations",
        rolls=False,
    ),
    Field(
        path="disruption.budget",
        value="Disabled",
        within={"replicas": 2},
        where="PodDisruptionBudget",
        expected=ABSENT,
        rolls=False,
    ),
    Field(
        path="disruption.maxUnavailable",
        value=2,
        within={"replicas": 3},
        where="PodDisruptionBudget: spec.maxUnavailable",
        rolls=False,
    ),
    Field(
        path="rollout.strategy",
        value="InPlace",
        where="Deployment: spec.strategy.rollingUpdate.maxSurge",
        expected=0,
        rolls=False,
    ),
    Field(
        path="rollout.progressDeadlineSeconds",
        value=99,
        where="Deployment: spec.progressDeadlineSeconds",
        rolls=False,
    ),
    Field(path="monitoring.podMonitor", value="Disabled", where="PodMonitor", expected=ABSENT, rolls=False),
    Field(
        path="monitoring.labels{}",
        value={"release": "prometheus"},
        where="PodMonitor: metadata.labels.release",
        expected="prometheus",
        rolls=False,
    ),
    Field(path="networkPolicy", value="Enabled", where="NetworkPolicy", expected=MADE, rolls=False),
)

OPERATOR = (
    Field(
        path="paused",
        value=True,
        where=NOWHERE,
        rolls=False,
        shown_by="tests/reconcile/test_templates.py::test_a_paused_backend_keeps_what_it_has",
    ),
    Field(
        path="upgradePolicy",
        value="Rolling",
        where=NOWHERE,
        rolls=False,
        shown_by="tests/integration/test_revisions.py::test_rolling_takes_the_newer_template",
    ),
    Field(path="rollout.autoRollback", value="Disabled", where=NOWHERE, rolls=False),
    Field(path="disruption.blockAtMostSeconds", value=60, where=NOWHERE, rolls=False),
)
