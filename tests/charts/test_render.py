"""The chart as the real helm renders it: every scope and option, valid in every release, refused in readable words."""

import runpy
import subprocess
import warnings

import pytest
import yaml

from e2e import helm
from e2e.cluster import gobuild
from penstock.runtime.settings import OperatorSettings
from scripts import chartvalues, manifest
from tests.charts.objects import CHART, REPOSITORY, container_of, of_kind

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kubernetes_validate

pytestmark = pytest.mark.integration

SCOPES = {"cluster": {}, "two namespaces": {"watchNamespaces": ["team-a", "team-b"]}}
OPTIONS = {
    "defaults": {},
    "one replica": {"replicas": 1},
    "nothing optional": {
        "crds.install": False,
        "rbac.aggregateToUsers": False,
        "metrics.service.enabled": False,
        "podDisruptionBudget.enabled": False,
    },
    "rights and identity by others": {"rbac.create": False, "serviceAccount.create": False},
    "everything": {
        "image": {"repository": "registry.example/penstock", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "replicas": 3,
        "crds.keep": False,
        "settings": {"logFormat": "json", "workers": 8, "resyncSeconds": 3600},
        "serviceAccount": {"name": "other", "annotations": {"a.example/role": "r"}},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
        "extraVolumes": [{"name": "prometheus", "secret": {"secretName": "prometheus"}}],
        "extraVolumeMounts": [{"name": "prometheus", "mountPath": "/etc/prometheus", "readOnly": True}],
        "podAnnotations": {"a.example/b": "c"},
        "podLabels": {"team": "x", "app.kubernetes.io/name": "not-this"},
        "nodeSelector": {"node-role.example": "system"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "priorityClassName": "system-cluster-critical",
        "podDisruptionBudget.maxUnavailable": "50%",
        "metrics": {
            "service": {"annotations": {"prometheus.io/scrape": "true"}},
            "podMonitor": {"enabled": True, "labels": {"release": "p"}, "interval": "30s"},
            "serviceMonitor": {"enabled": True, "labels": {"release": "p"}, "interval": "30s"},
        },
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        },
    },
}
WITHOUT_PUBLISHED_SCHEMA = ("CustomResourceDefinition", "PodMonitor", "ServiceMonitor")
EVERYTHING = OPTIONS["everything"]


@pytest.mark.parametrize("release", ["1.29", "1.34", "1.37"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_every_object_is_valid_in_every_supported_release(render, scope, options, release):
    objects = render({**scope, **options})
    assert of_kind(objects, "Deployment")
    for obj in objects:
        if obj["kind"] not in WITHOUT_PUBLISHED_SCHEMA:
            kubernetes_validate.validate(obj, release, strict=True)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_helm_lint_has_nothing_to_say(scope, options):
    values = helm.value_arguments({**scope, **options})
    assert "0 chart(s) failed" in helm.run("lint", CHART, "--strict", *values)


def test_the_manifest_is_what_helm_renders():
    dump = runpy.run_path(str(REPOSITORY / "scripts" / "generate.py"))["dump"]
    assert (REPOSITORY / "deploy" / "install.yaml").read_text() == manifest.render(REPOSITORY, dump)


@pytest.mark.parametrize("release", ["1.29", "1.37"])
def test_helm_test_is_a_pod_as_restricted_as_the_operator(release):
    objects = [obj for obj in yaml.safe_load_all(helm.template()) if obj]
    (pod,) = of_kind(objects, "Pod")
    kubernetes_validate.validate(pod, release, strict=True)
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"] == container_of(objects)["securityContext"]
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_prometheus_is_asked_with_files_of_a_secret(render):
    folder = "/etc/penstock/prometheus"
    objects = render(
        {
            "settings.prometheusUrl": "https://prometheus.monitoring:9090",
            "settings.prometheusTokenFile": f"{folder}/token",
            "settings.prometheusCaFile": f"{folder}/ca.crt",
            "extraVolumes": [{"name": "prometheus", "secret": {"secretName": "prometheus-access"}}],
            "extraVolumeMounts": [{"name": "prometheus", "mountPath": folder, "readOnly": True}],
        }
    )
    container = container_of(objects)
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["PENSTOCK_PROMETHEUS_TOKEN_FILE"] == f"{folder}/token"
    assert variables["PENSTOCK_PROMETHEUS_CA_FILE"] == f"{folder}/ca.crt"
    assert {"name": "prometheus", "mountPath": folder, "readOnly": True} in container["volumeMounts"]
    (deployment,) = of_kind(objects, "Deployment")
    assert {"name": "prometheus", "secret": {"secretName": "prometheus-access"}} in deployment["spec"]["template"][
        "spec"
    ]["volumes"]


def test_on_openshift_the_platform_chooses_the_user(render):
    for platform, expected in (("Kubernetes", 65532), ("OpenShift", None)):
        (deployment,) = of_kind(render({"settings.platform": platform}), "Deployment")
        context = deployment["spec"]["template"]["spec"]["securityContext"]
        assert context.get("runAsUser") == context.get("runAsGroup") == expected
        assert context["runAsNonRoot"] is True


def subjects(objects, kind):
    return {
        (obj["metadata"].get("namespace"), obj["roleRef"]["kind"], obj["roleRef"]["name"])
        for obj in of_kind(objects, kind)
    }


def test_limited_to_namespaces_there_is_no_right_that_spans_the_cluster(render):
    objects = render({"watchNamespaces": ["team-a", "penstock-system", "team-a"]})
    assert of_kind(objects, "ClusterRoleBinding") == []
    assert all("aggregate-to" in str(role["metadata"]["labels"]) for role in of_kind(objects, "ClusterRole"))
    assert subjects(objects, "RoleBinding") == {
        ("penstock-system", "Role", "penstock-operator"),
        ("penstock-system", "Role", "penstock-operator-backends"),
        ("team-a", "Role", "penstock-operator-backends"),
    }
    assert {"name": "PENSTOCK_WATCH_NAMESPACES", "value": "team-a,penstock-system,team-a"} in container_of(objects)[
        "env"
    ]


def test_rights_are_the_same_in_both_scopes(render):
    (everywhere,) = (role for role in of_kind(render(), "ClusterRole") if "aggregate" not in str(role["metadata"]))
    roles = of_kind(render(SCOPES["two namespaces"]), "Role")
    limited = [role for role in roles if role["metadata"]["name"].endswith("-backends")]
    assert [role["rules"] for role in limited] == [everywhere["rules"]] * 2


def test_no_rights_at_all_when_others_give_them(render):
    kinds = {obj["kind"] for obj in render({"rbac.create": False, "rbac.aggregateToUsers": False})}
    assert not [kind for kind in kinds if "Role" in kind]


@pytest.mark.parametrize("keep", [True, False])
def test_the_crd_stays_unless_told_otherwise(render, keep):
    (definition,) = of_kind(render({"crds.keep": keep}), "CustomResourceDefinition")
    assert definition["metadata"].get("annotations", {}) == ({"helm.sh/resource-policy": "keep"} if keep else {})


def environment(objects):
    return {entry["name"]: entry.get("value") for entry in container_of(objects)["env"]}


def test_every_setting_reaches_the_operator_and_is_accepted_by_it(render):
    """The environment of the rendered container, read as the command line reads it, gives the defaults again."""
    given = environment(render())
    values = {}
    for name in OperatorSettings.model_fields:
        text = given.get(f"PENSTOCK_{name.upper()}")
        if text and name not in chartvalues.SET_BY_CHART:
            values[name] = text
    settings = OperatorSettings.model_validate({"image": given["PENSTOCK_IMAGE"], **values})
    assert settings == OperatorSettings(image=given["PENSTOCK_IMAGE"])


def test_a_changed_setting_reaches_the_operator(render):
    given = environment(render({"settings.resyncSeconds": 3600, "settings.logFormat": "json"}))
    assert given["PENSTOCK_RESYNC_SECONDS"] == "3600"
    assert given["PENSTOCK_LOG_FORMAT"] == "json"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "ghcr.io/penstock-dev/penstock:0.1.0.dev0"),
        ({"image.tag": "1.0"}, "ghcr.io/penstock-dev/penstock:1.0"),
        ({"image.repository": "r.example/p", "image.tag": "1"}, "r.example/p:1"),
        ({"image.tag": "1", "image.digest": "sha256:" + "a" * 64}, "ghcr.io/penstock-dev/penstock@sha256:" + "a" * 64),
    ],
    ids=["release", "tag", "registry", "digest"],
)
def test_operator_and_limiter_run_from_one_image(render, image, expected):
    objects = render(image)
    assert container_of(objects)["image"] == expected
    assert environment(objects)["PENSTOCK_IMAGE"] == expected


@pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (2, 1), (3, 1)])
def test_there_is_a_disruption_budget_when_there_is_more_than_one(render, replicas, budgets):
    assert len(of_kind(render({"replicas": replicas}), "PodDisruptionBudget")) == budgets


def test_selectors_hold_nothing_that_an_upgrade_or_a_user_changes(render):
    fixed = {"app.kubernetes.io/name": "penstock-operator", "app.kubernetes.io/instance": "penstock"}
    objects = render(EVERYTHING)
    (deployment,), (service,), (budget,), (policy,) = (
        of_kind(objects, kind) for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
    )
    assert deployment["spec"]["selector"]["matchLabels"] == fixed
    assert service["spec"]["selector"] == fixed
    assert budget["spec"]["selector"]["matchLabels"] == fixed
    assert policy["spec"]["podSelector"]["matchLabels"] == fixed
    assert fixed.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_monitors_find_the_metrics(render):
    objects = render(EVERYTHING)
    (pods,), (services,), (service,) = (of_kind(objects, kind) for kind in ("PodMonitor", "ServiceMonitor", "Service"))
    assert [endpoint["port"] for endpoint in pods["spec"]["podMetricsEndpoints"]] == ["metrics"]
    assert [endpoint["port"] for endpoint in services["spec"]["endpoints"]] == ["metrics"]
    assert services["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert "metrics" in [port["name"] for port in service["spec"]["ports"]]
    assert "metrics" in [port["name"] for port in container_of(objects)["ports"]]


def test_ports_move_together(render):
    objects = render({"settings.healthPort": 9001, "settings.metricsPort": 9002, "networkPolicy.enabled": True})
    container = container_of(objects)
    assert [port["containerPort"] for port in container["ports"]] == [9001, 9002]
    assert container["readinessProbe"]["httpGet"]["port"] == 9001
    assert of_kind(objects, "Service")[0]["spec"]["ports"][0]["targetPort"] == 9002
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert [rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]] == [9001, 9002]


@pytest.mark.parametrize(
    ("release", "name"), [("penstock", "penstock-operator"), ("team-a", "team-a-penstock-operator")]
)
def test_two_releases_share_neither_names_nor_a_lease(release, name):
    objects = [obj for obj in yaml.safe_load_all(helm.template(release=release)) if obj]
    (deployment,) = of_kind(objects, "Deployment")
    assert deployment["metadata"]["name"] == name
    assert environment(objects)["PENSTOCK_LEASE_NAME"] == name
    (role,) = of_kind(objects, "Role")
    leases = [rule.get("resourceNames") for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert leases == [None, [name]]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"imgae.tag": "1"}, "additional properties 'imgae' not allowed"),
        ({"settings.wrokers": 1}, "at '/settings': additional properties 'wrokers' not allowed"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"watchNamespaces": "team-a"}, "at '/watchNamespaces': got string, want array"),
        ({"settings.workers": 100}, "at '/settings/workers': maximum: got 100, want 64"),
        (
            {"settings.logLevel": "loud"},
            "at '/settings/logLevel': value must be one of 'debug', 'info', 'warning', 'error'",
        ),
        (
            {"metrics.service.enabled": False, "metrics.serviceMonitor.enabled": True},
            "metrics.serviceMonitor needs the Service: set metrics.service.enabled to true",
        ),
    ],
    ids=["unknown value", "unknown setting", "type", "list", "bound", "choice", "combination"],
)
def test_wrong_values_are_refused_in_words_that_name_them(render, values, words):
    with pytest.raises(helm.HelmFailed) as refused:
        render(values)
    assert words in str(refused.value)


def test_an_old_cluster_is_refused(render):
    with pytest.raises(helm.HelmFailed, match=r"requires kubeVersion: >=1\.29\.0-0"):
        render({}, "--kube-version=1.28.9")
    assert render({}, "--kube-version=1.29.0-gke.1")


def test_kustomize_gives_one_image_to_operator_and_limiter(tmp_path):
    """As the comment in deploy/kustomization.yaml says."""
    folder = tmp_path / "deploy"
    folder.mkdir()
    for name in ("install.yaml", "kustomization.yaml"):
        (folder / name).write_text((REPOSITORY / "deploy" / name).read_text())
    with (folder / "kustomization.yaml").open("a") as file:
        file.write("images: [{name: ghcr.io/penstock-dev/penstock, newName: r.example/p, newTag: dev}]\n")
    kubectl = str(gobuild.binary("kubectl"))
    text = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True).stdout
    objects = list(yaml.safe_load_all(text))
    assert container_of(objects)["image"] == "r.example/p:dev"
    assert environment(objects)["PENSTOCK_IMAGE"] == "r.example/p:dev"
