"""Fields of `spec.pod`: what a pod spec takes as it is, the security contexts, and the user's own volumes."""

from tests.resources.fields import Field, group

TOLERATION = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60}
SPREAD = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
CLAIM_TEMPLATE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}


def _volume(**source: object) -> dict:
    return {"pod": {"volumes": [{"name": "v", **source}]}}


def _mount(**mount: object) -> dict:
    return {"pod": {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", **mount}]}}


SCHEDULING = (
    Field(path="pod.labels{}", value={"team": "a"}, where="labels: team", expected="a", rolls=True),
    Field(path="pod.annotations{}", value={"team": "a"}, where="annotations: team", expected="a", rolls=True),
    *group(
        "pod.",
        "pod: ",
        {
            "nodeSelector{}": {"disk": "ssd"},
            "priorityClassName": "high",
            "runtimeClassName": "nvidia",
            "schedulerName": "volcano",
            "serviceAccountName": "team",
            "imagePullSecrets[].name": "pull",
        },
        rolls=True,
    ),
    Field(
        path="pod.tolerations[].key",
        value="other",
        instead="gpu",
        within={"pod": {"tolerations": [TOLERATION]}},
        where="pod: tolerations[0].key",
        rolls=True,
    ),
    Field(
        path="pod.tolerations[].operator",
        value="Exists",
        within={"pod": {"tolerations": [{"key": "gpu"}]}},
        where="pod: tolerations[0].operator",
        rolls=True,
    ),
    *group(
        "pod.tolerations[].",
        "pod: tolerations[0].",
        {"value": "yes", "tolerationSeconds": 60},
        rolls=True,
        within={"pod": {"tolerations": [TOLERATION]}},
    ),
    Field(
        path="pod.tolerations[].effect",
        value="NoSchedule",
        within={"pod": {"tolerations": [{"key": "gpu"}]}},
        where="pod: tolerations[0].effect",
        rolls=True,
    ),
    Field(
        path="pod.topologySpreadConstraints[].topologyKey",
        value="rack",
        instead="zone",
        where="pod: topologySpreadConstraints[0].topologyKey",
        rolls=True,
    ),
    Field(
        path="pod.topologySpreadConstraints[].whenUnsatisfiable",
        value="DoNotSchedule",
        within={"pod": {"topologySpreadConstraints": [{"topologyKey": "zone"}]}},
        where="pod: topologySpreadConstraints[0].whenUnsatisfiable",
        rolls=True,
    ),
    *group(
        "pod.topologySpreadConstraints[].",
        "pod: topologySpreadConstraints[0].",
        {"maxSkew": 2, "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
        rolls=True,
        within={"pod": {"topologySpreadConstraints": [SPREAD]}},
    ),
)

SECURITY = (
    Field(path="pod.securityContext.runAsUser", value=1234, where="engine: securityContext.runAsUser", rolls=True),
    Field(path="pod.securityContext.runAsGroup", value=1234, where="engine: securityContext.runAsGroup", rolls=True),
    *group(
        "pod.securityContext.",
        "pod: securityContext.",
        {
            "fsGroup": 1234,
            "fsGroupChangePolicy": "Always",
            "supplementalGroups[]": 44,
            "seLinuxOptions.level": "s0:c1,c2",
            "seLinuxOptions.role": "system_r",
            "seLinuxOptions.type": "container_t",
            "seLinuxOptions.user": "system_u",
        },
        rolls=True,
    ),
)

VOLUMES = (
    Field(
        path="pod.volumes[].name",
        value="other",
        instead="v",
        within=_volume(emptyDir={}),
        where="pod: volumes[-1].name",
        rolls=True,
    ),
    Field(
        path="pod.volumes[].persistentVolumeClaim.claimName",
        value="other",
        instead="c",
        within=_volume(),
        where="pod: volumes[-1].persistentVolumeClaim.claimName",
        rolls=True,
    ),
    Field(
        path="pod.volumes[].persistentVolumeClaim.readOnly",
        value=True,
        within=_volume(persistentVolumeClaim={"claimName": "c"}),
        where="pod: volumes[-1].persistentVolumeClaim.readOnly",
        rolls=True,
    ),
    *(
        row
        for source, naming in (("configMap", "name"), ("secret", "secretName"))
        for row in (
            Field(
                path=f"pod.volumes[].{source}.{naming}",
                value="other",
                instead="c",
                within=_volume(),
                where=f"pod: volumes[-1].{source}.{naming}",
                rolls=True,
            ),
            *group(
                f"pod.volumes[].{source}.",
                f"pod: volumes[-1].{source}.",
                {"defaultMode": 256, "optional": True},
                rolls=True,
                within=_volume(**{source: {naming: "c"}}),
            ),
            *group(
                f"pod.volumes[].{source}.",
                f"pod: volumes[-1].{source}.",
                {"items[].key": "other", "items[].path": "other"},
                rolls=True,
                within=_volume(**{source: {naming: "c", "items": [{"key": "k", "path": "p"}]}}),
                instead="k",
            ),
            Field(
                path=f"pod.volumes[].{source}.items[].mode",
                value=256,
                within=_volume(**{source: {naming: "c", "items": [{"key": "k", "path": "p"}]}}),
                where=f"pod: volumes[-1].{source}.items[0].mode",
                rolls=True,
            ),
        )
    ),
    *group(
        "pod.volumes[].emptyDir.",
        "pod: volumes[-1].emptyDir.",
        {"medium": "Memory", "sizeLimit": "1Gi"},
        rolls=True,
        within=_volume(emptyDir={}),
    ),
    Field(
        path="pod.volumes[].csi.driver",
        value="other.example",
        instead="csi.example",
        within=_volume(),
        where="pod: volumes[-1].csi.driver",
        rolls=True,
    ),
    *group(
        "pod.volumes[].csi.",
        "pod: volumes[-1].csi.",
        {"readOnly": True, "fsType": "xfs", "volumeAttributes{}": {"a": "b"}},
        rolls=True,
        within=_volume(csi={"driver": "csi.example"}),
    ),
    Field(
        path="pod.volumes[].csi.nodePublishSecretRef.name",
        value="other",
        instead="s",
        within=_volume(csi={"driver": "csi.example"}),
        where="pod: volumes[-1].csi.nodePublishSecretRef.name",
        rolls=True,
    ),
    *group(
        "pod.volumes[].ephemeral.volumeClaimTemplate.",
        "pod: volumes[-1].ephemeral.volumeClaimTemplate.",
        {
            "metadata.labels{}": {"a": "b"},
            "metadata.annotations{}": {"a": "b"},
            "spec.storageClassName": "fast",
            "spec.resources.limits.storage": "2Gi",
        },
        rolls=True,
        within=_volume(ephemeral={"volumeClaimTemplate": CLAIM_TEMPLATE}),
    ),
    Field(
        path="pod.volumes[].ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
        value="2Gi",
        instead="1Gi",
        within=_volume(ephemeral={"volumeClaimTemplate": CLAIM_TEMPLATE}),
        where="pod: volumes[-1].ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
        rolls=True,
    ),
    Field(
        path="pod.volumes[].ephemeral.volumeClaimTemplate.spec.accessModes[]",
        value="ReadWriteMany",
        instead="ReadWriteOnce",
        within=_volume(ephemeral={"volumeClaimTemplate": CLAIM_TEMPLATE}),
        where="pod: volumes[-1].ephemeral.volumeClaimTemplate.spec.accessModes[0]",
        rolls=True,
    ),
    Field(
        path="pod.volumeMounts[].name",
        value="w",
        instead="v",
        within={
            "pod": {
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        },
        where="engine: volumeMounts[mountPath=/v].name",
        rolls=True,
    ),
    Field(
        path="pod.volumeMounts[].mountPath",
        value="/w",
        instead="/v",
        within=_mount(mountPath="/v"),
        where="engine: volumeMounts[name=v].mountPath",
        rolls=True,
    ),
    *group(
        "pod.volumeMounts[].",
        "engine: volumeMounts[name=v].",
        {"subPath": "a/b", "readOnly": True},
        rolls=True,
        within=_mount(mountPath="/v"),
    ),
    Field(
        path="pod.sharedMemoryMebibytes",
        value=64,
        where="pod: volumes[name=penstock-shared-memory].emptyDir.sizeLimit",
        expected="64Mi",
        rolls=True,
    ),
)
