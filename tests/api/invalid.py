"""Objects that must be refused, as data: what is wrong, where, and in which words the user hears of it.

`REFUSED` never reaches the cluster: the schema or a rule in CEL refuses it, and the model refuses it the same.
`STALLED` is stored, because the API server cannot see what is wrong, and found by the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.api.examples import backend, vllm

GPU = "nvidia.com/gpu"
BAKED = {"baked": {"path": "/m.gguf"}}
CLAIM = {"persistentVolumeClaim": {"claimName": "models", "path": "/m.gguf"}}
HUB = {"huggingFace": {"repository": "acme/tiny-gguf", "file": "tiny.gguf"}}
KEYS = {"keysSecretRef": {"name": "keys"}}

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PLACE = {"topologyKey": "kubernetes.io/hostname"}
NODE_LABELS = f"spec.pod.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
POD_TERM = f"spec.pod.affinity.podAffinity.{REQUIRED}[0]"
TEMPLATE = "spec.pod.volumes[0].ephemeral.volumeClaimTemplate"


@dataclass(frozen=True, kw_only=True)
class Invalid:
    """One object that must be refused.

    Attributes:
        name: What is wrong with it.
        body: The object.
        field: Path of the field in the API server's answer.
        words: Part of the message.
        model_field: Path in the model's answer, where it differs: the model sees a list where the API server sees one
            of its entries.
        model_words: Part of the model's message, where it differs: plain bounds and types have words of their own.
    """

    name: str
    body: dict[str, Any]
    field: str
    words: str
    model_field: str = ""
    model_words: str = ""


def source(**sources: Any) -> dict[str, Any]:
    """Return a backend with these sources of the model."""
    return backend(model={"name": "m", "source": sources})


def hub(**fields: Any) -> dict[str, Any]:
    """Return a backend whose model comes from the hub, with fields of the source replaced."""
    return source(huggingFace={**HUB["huggingFace"], **fields})


def cached(cache: dict[str, Any], **sources: Any) -> dict[str, Any]:
    """Return a backend with a cache for its model."""
    return backend(model={"name": "m", "source": sources or HUB, "cache": cache})


def environment(*variables: dict[str, Any]) -> dict[str, Any]:
    """Return a backend with these variables."""
    return vllm(engine={"env": list(variables)})


def pod(**parts: Any) -> dict[str, Any]:
    """Return a backend with these parts of the pod."""
    return backend(pod=parts)


def node_labels(condition: dict[str, Any]) -> dict[str, Any]:
    """Return a backend that needs nodes with a label."""
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}}})


def pods(**fields: Any) -> dict[str, Any]:
    """Return a backend whose replicas run near other pods, with fields of the term replaced."""
    return pod(affinity={"podAffinity": {REQUIRED: [{**PLACE, **fields}]}})


def claim_template(metadata: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a backend with a claim for each pod, with parts of the claim replaced."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **fields}
    return volumes({"name": "x", "ephemeral": {"volumeClaimTemplate": {"metadata": metadata or {}, "spec": spec}}})


def volumes(*entries: dict[str, Any]) -> dict[str, Any]:
    """Return a backend with these volumes."""
    return pod(volumes=list(entries))


def admission(**parts: Any) -> dict[str, Any]:
    """Return a backend with these parts of admission."""
    return backend(admission=parts)


def classes(*entries: dict[str, Any]) -> dict[str, Any]:
    """Return a backend with these priority classes."""
    return admission(priorityClasses=list(entries))


def limit(**fields: Any) -> dict[str, Any]:
    """Return a backend with one quota."""
    return admission(rateLimits=[{"name": "all", "limit": 10, **fields}])


def tenants(**parts: Any) -> dict[str, Any]:
    """Return a backend with these tenants."""
    return backend(tenants=parts)


def tenant_class(**fields: Any) -> dict[str, Any]:
    """Return a backend with one class of tenants."""
    return tenants(**KEYS, classes=[{"name": "gold", "tenants": ["acme"], **fields}])


_NAME = "at most 52 lower-case letters, digits and `-`, starting with a letter"

_WHOLE = (
    Invalid(
        name="a dot in the name",
        body=backend(name="qwen2.5-7b"),
        field="metadata.name",
        words=f"{_NAME}; write for example qwen2-5-7b",
        model_words=_NAME,
    ),
    Invalid(
        name="a name that starts with a digit",
        body=backend(name="7b-chat"),
        field="metadata.name",
        words="write for example m-7b-chat",
        model_words=_NAME,
    ),
    Invalid(name="a name that is too long", body=backend(name="a" * 53), field="metadata.name", words=_NAME),
    Invalid(
        name="no engine",
        body={**backend(), "spec": {"model": {"name": "m", "source": BAKED}}},
        field="spec.engine",
        words="Required value",
        model_words="Field required",
    ),
    Invalid(
        name="negative replicas",
        body=backend(replicas=-1),
        field="spec.replicas",
        words="greater than or equal to 0",
    ),
    Invalid(
        name="replicas as text",
        body=backend(replicas="2"),
        field="spec.replicas",
        words="must be of type integer",
        model_words="valid integer",
    ),
    Invalid(
        name="suspend as text",
        body=backend(suspend="yes"),
        field="spec.suspend",
        words="must be of type boolean",
        model_words="valid boolean",
    ),
)

_ENGINE = (
    Invalid(
        name="an unknown engine",
        body=backend(engine={"type": "TGI"}),
        field="spec.engine.type",
        words='supported values: "VLLM", "LlamaCpp"',
        model_words="'VLLM' or 'LlamaCpp'",
    ),
    Invalid(
        name="a vllm block for llama.cpp",
        body=backend(engine={"type": "LlamaCpp", "vllm": {}}),
        field="spec.engine.vllm",
        words="for LlamaCpp write `llamaCpp`",
    ),
    Invalid(
        name="a llamaCpp block for vLLM",
        body=vllm(engine={"llamaCpp": {}}),
        field="spec.engine.llamaCpp",
        words="for VLLM write `vllm`",
    ),
    Invalid(
        name="a space in an image",
        body=backend(engine={"type": "LlamaCpp", "image": "my image"}),
        field="spec.engine.image",
        words="must be an image",
    ),
    Invalid(
        name="an argument that opens the engine",
        body=vllm(args=["--seed", "7", "--host=0.0.0.0"]),
        field="spec.engine.args",
        words="reached through the limiter only",
    ),
    Invalid(
        name="a variable that opens vLLM",
        body=environment({"name": "VLLM_API_KEY", "value": "x"}),
        field="spec.engine.env",
        words="reached through the limiter only",
    ),
    Invalid(
        name="a variable that opens llama.cpp",
        body=backend(engine={"type": "LlamaCpp", "env": [{"name": "LLAMA_ARG_HOST", "value": "0.0.0.0"}]}),
        field="spec.engine.env",
        words="LLAMA_ARG_* are refused",
    ),
    Invalid(
        name="a variable twice",
        body=environment({"name": "A", "value": "1"}, {"name": "A", "value": "2"}),
        field="spec.engine.env[1]",
        words="Duplicate value",
        model_field="spec.engine.env",
        model_words="`name` repeats: A",
    ),
    Invalid(
        name="a variable with two values",
        body=environment({"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        field="spec.engine.env[0]",
        words="write `value` or `valueFrom`, not both",
    ),
    Invalid(
        name="a variable from nowhere",
        body=environment({"name": "A", "valueFrom": {}}),
        field="spec.engine.env[0].valueFrom",
        words="write exactly one of `secretKeyRef`, `configMapKeyRef` and `fieldRef`",
    ),
    Invalid(
        name="a variable from a field that pods do not have",
        body=environment({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.hostname"}}}),
        field="spec.engine.env[0].valueFrom.fieldRef.fieldPath",
        words="must be a field of the pod, such as metadata.name",
    ),
    Invalid(
        name="a variable that starts with a digit",
        body=environment({"name": "1A", "value": "1"}),
        field="spec.engine.env[0].name",
        words="must be a variable's name",
    ),
    Invalid(
        name="a context of a few tokens",
        body=backend(engine={"type": "LlamaCpp", "contextLength": 8}),
        field="spec.engine.contextLength",
        words="greater than or equal to 64",
    ),
    Invalid(
        name="more memory than a GPU has",
        body=vllm(engine={"vllm": {"gpuMemoryUtilizationPercent": 101}}),
        field="spec.engine.vllm.gpuMemoryUtilizationPercent",
        words="less than or equal to 100",
    ),
    Invalid(
        name="flash attention as a truth value",
        body=backend(engine={"type": "LlamaCpp", "llamaCpp": {"flashAttention": True}}),
        field="spec.engine.llamaCpp.flashAttention",
        words="must be of type string",
        model_words="'Auto', 'Enabled' or 'Disabled'",
    ),
    Invalid(
        name="more ranks than GPUs",
        body=vllm(engine={"vllm": {"tensorParallelSize": 4}}, resources={"limits": {GPU: 2}}),
        field="spec",
        words="must equal tensorParallelSize × pipelineParallelSize × dataParallelSize; leave tensorParallelSize out",
    ),
    Invalid(
        name="GPUs that cannot be divided",
        body=vllm(engine={"vllm": {"dataParallelSize": 2}}, resources={"limits": {"amd.com/gpu": "3"}}),
        field="spec",
        words="must equal tensorParallelSize",
    ),
    Invalid(
        name="memory that is no quantity",
        body=backend(resources={"limits": {"memory": "lots"}}),
        field="spec.resources.limits.memory",
        words="should match",
        model_words="should match pattern",
    ),
)

_MODEL = (
    Invalid(name="no source", body=source(), field="spec.model.source", words="write exactly one of"),
    Invalid(name="two sources", body=source(**CLAIM, **BAKED), field="spec.model.source", words="write exactly one of"),
    Invalid(
        name="a path of the node",
        body=source(hostPath={"path": "/"}),
        field="spec.model.source",
        words="paths of the node are not supported",
    ),
    Invalid(
        name="a relative path",
        body=source(baked={"path": "m.gguf"}),
        field="spec.model.source.baked.path",
        words="must be an absolute path without `.` and `..`, such as /models/model.gguf",
    ),
    Invalid(
        name="a path that climbs",
        body=source(persistentVolumeClaim={"claimName": "c", "path": "/a/../../etc"}),
        field="spec.model.source.persistentVolumeClaim.path",
        words="must be an absolute path without `.` and `..`",
    ),
    Invalid(
        name="a folder for llama.cpp",
        body=source(persistentVolumeClaim={"claimName": "c", "path": "/"}),
        field="spec.model.source",
        words="llama.cpp needs the path of a GGUF file",
    ),
    Invalid(
        name="a whole image for llama.cpp",
        body=source(image={"reference": "registry.example/models/tiny:1"}),
        field="spec.model.source",
        words="llama.cpp needs the path of a GGUF file",
    ),
    Invalid(
        name="an image that is none",
        body=source(image={"reference": "not an image", "path": "/m.gguf"}),
        field="spec.model.source.image.reference",
        words="must be an image, such as registry.example/name:tag",
    ),
    Invalid(
        name="a whole repository for llama.cpp",
        body=source(huggingFace={"repository": "acme/tiny-gguf"}),
        field="spec.model.source.huggingFace",
        words="llama.cpp needs `file`, the GGUF file in the repository",
    ),
    Invalid(
        name="a file that is no GGUF for llama.cpp",
        body=hub(file="model.safetensors"),
        field="spec.model.source.huggingFace",
        words="such as model-q8_0.gguf",
    ),
    Invalid(
        name="a URL as a repository",
        body=hub(repository="https://huggingface.co/acme/tiny"),
        field="spec.model.source.huggingFace.repository",
        words="must be owner/name, such as Qwen/Qwen2.5-7B-Instruct",
    ),
    Invalid(
        name="a file that climbs out of the repository",
        body=hub(file="../tiny.gguf"),
        field="spec.model.source.huggingFace.file",
        words="must be a relative path",
    ),
    Invalid(
        name="a revision with a space",
        body=hub(revision="my branch"),
        field="spec.model.source.huggingFace.revision",
        words="must be a branch, a tag or a commit",
    ),
    Invalid(
        name="credentials in the address of a hub",
        body=hub(endpoint="https://user:secret@hub.example"),
        field="spec.model.source.huggingFace.endpoint",
        words="must be a URL without credentials",
    ),
    Invalid(
        name="a token without the name of its Secret",
        body=hub(tokenSecretRef={"key": "token"}),
        field="spec.model.source.huggingFace.tokenSecretRef.name",
        words="Required value",
        model_words="Field required",
    ),
    Invalid(
        name="a cache for what is not downloaded",
        body=cached({"ephemeral": {"sizeMebibytes": 100}}, **BAKED),
        field="spec.model.cache",
        words="`cache` keeps what `source.huggingFace` downloads; remove it",
    ),
    Invalid(name="an empty cache", body=cached({}), field="spec.model.cache", words="write exactly one of"),
    Invalid(
        name="two caches",
        body=cached({"ephemeral": {"sizeMebibytes": 100}, "persistentVolumeClaim": {"claimName": "c"}}),
        field="spec.model.cache",
        words="write exactly one of `persistentVolumeClaim` and `ephemeral`",
    ),
    Invalid(
        name="a space in the model's name",
        body=backend(model={"name": "my model", "source": BAKED}),
        field="spec.model.name",
        words="such as Qwen/Qwen2.5-7B-Instruct",
    ),
    Invalid(
        name="a comma in an alias",
        body=backend(model={"name": "m", "aliases": ["a,b"], "source": BAKED}),
        field="spec.model.aliases[0]",
        words="must be letters, digits and any of",
    ),
)

_POD = (
    Invalid(
        name="a host path as a volume",
        body=volumes({"name": "host", "hostPath": {"path": "/"}}),
        field="spec.pod.volumes[0]",
        words="hostPath and others are not supported",
    ),
    Invalid(
        name="a volume with two sources",
        body=volumes({"name": "x", "emptyDir": {}, "secret": {"secretName": "s"}}),
        field="spec.pod.volumes[0]",
        words="exactly one of",
    ),
    Invalid(
        name="a reserved volume name",
        body=volumes({"name": "penstock-tmp", "emptyDir": {}}),
        field="spec.pod.volumes[0].name",
        words="Penstock's own; choose another",
    ),
    Invalid(
        name="a volume twice",
        body=volumes({"name": "x", "emptyDir": {}}, {"name": "x", "emptyDir": {}}),
        field="spec.pod.volumes[1]",
        words="Duplicate value",
        model_field="spec.pod.volumes",
        model_words="`name` repeats: x",
    ),
    Invalid(
        name="a mount without its volume",
        body=pod(volumes=[{"name": "x", "emptyDir": {}}], volumeMounts=[{"name": "y", "mountPath": "/y"}]),
        field="spec.pod",
        words="names a volume in `volumes`",
    ),
    Invalid(
        name="a file that climbs out of its volume",
        body=volumes({"name": "x", "configMap": {"name": "c", "items": [{"key": "k", "path": "../k"}]}}),
        field="spec.pod.volumes[0].configMap.items[0].path",
        words="must be a relative path",
    ),
    Invalid(
        name="a label that selects the pods",
        body=pod(labels={"serving.penstock.dev/backend": "other"}),
        field="spec.pod.labels",
        words="`serving.penstock.dev/backend`: this key is Penstock's own; choose another",
    ),
    Invalid(
        name="a label that says who manages the pods",
        body=pod(labels={"app.kubernetes.io/managed-by": "Helm"}),
        field="spec.pod.labels",
        words="this key is Penstock's own",
    ),
    Invalid(
        name="a label that is none",
        body=pod(labels={"my team": "a"}),
        field="spec.pod.labels",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="a label's value that is none",
        body=pod(labels={"team": "a b"}),
        field="spec.pod.labels[team]",
        model_field="spec.pod.labels.team",
        words="starting and ending with a letter or digit",
    ),
    Invalid(
        name="an annotation that is Penstock's",
        body=pod(annotations={"kubectl.kubernetes.io/default-container": "x"}),
        field="spec.pod.annotations",
        words="this key is Penstock's own",
    ),
    Invalid(
        name="a toleration of nothing",
        body=pod(tolerations=[{"effect": "NoSchedule"}]),
        field="spec.pod.tolerations[0].operator",
        words="without `key` write `operator: Exists`",
    ),
    Invalid(
        name="a toleration that compares nothing",
        body=pod(tolerations=[{"key": "gpu", "operator": "Exists", "value": "true"}]),
        field="spec.pod.tolerations[0].value",
        words="belongs to `operator: Equal`",
    ),
    Invalid(
        name="a toleration for a while of a taint that never evicts",
        body=pod(tolerations=[{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}]),
        field="spec.pod.tolerations[0].tolerationSeconds",
        words="belongs to `effect: NoExecute`",
    ),
    Invalid(
        name="a spread over at least so many places that need not hold",
        body=pod(topologySpreadConstraints=[{"topologyKey": "zone", "minDomains": 2}]),
        field="spec.pod.topologySpreadConstraints[0].minDomains",
        words="belongs to `whenUnsatisfiable: DoNotSchedule`",
    ),
    Invalid(
        name="a toleration of a key that is none",
        body=pod(tolerations=[{"key": "a b", "operator": "Exists"}]),
        field="spec.pod.tolerations[0].key",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="a spread over a label that is none",
        body=pod(topologySpreadConstraints=[{"topologyKey": "a//b"}]),
        field="spec.pod.topologySpreadConstraints[0].topologyKey",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="a label of nodes with too long a name",
        body=pod(nodeSelector={"example.com/" + "x" * 64: "y"}),
        field="spec.pod.nodeSelector",
        words="at most 63 characters after `/`",
    ),
    Invalid(
        name="a label of nodes with too long a prefix",
        body=pod(nodeSelector={"x" * 1100 + "/y": "z"}),
        field="spec.pod.nodeSelector",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="a label of nodes whose prefix has an empty part",
        body=pod(nodeSelector={"example..com/x": "y"}),
        field="spec.pod.nodeSelector",
        words="`example..com/x`: must be a key",
    ),
    Invalid(
        name="a label's value that is too long",
        body=pod(nodeSelector={"disk": "x" * 64}),
        field="spec.pod.nodeSelector.disk",
        words="63",
    ),
    Invalid(
        name="a name with an empty part",
        body=pod(priorityClassName="a..b"),
        field="spec.pod.priorityClassName",
        words="must be an object's name",
    ),
    Invalid(
        name="a key of a Secret that climbs",
        body=volumes({"name": "x", "secret": {"secretName": "s", "items": [{"key": "..", "path": "p"}]}}),
        field="spec.pod.volumes[0].secret.items[0].key",
        words="not starting with `..`",
    ),
    Invalid(
        name="a driver that is no name",
        body=volumes({"name": "x", "csi": {"driver": "a b"}}),
        field="spec.pod.volumes[0].csi.driver",
        words="must be a driver's name, such as csi.example.com",
    ),
    Invalid(
        name="a setting of a driver with too long a key",
        body=volumes({"name": "x", "csi": {"driver": "csi.example", "volumeAttributes": {"x" * 254: "y"}}}),
        field="spec.pod.volumes[0].csi.volumeAttributes",
        words="plain characters, at most 253",
    ),
    Invalid(
        name="a label of a claim that is none",
        body=claim_template(metadata={"labels": {"my team": "a"}}),
        field=f"{TEMPLATE}.metadata.labels",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="a value of a claim's label that is none",
        body=claim_template(metadata={"labels": {"team": "a b"}}),
        field=f"{TEMPLATE}.metadata.labels[team]",
        words="starting and ending with a letter or digit",
        model_field=f"{TEMPLATE}.metadata.labels.team",
    ),
    Invalid(
        name="an annotation of a claim that is none",
        body=claim_template(metadata={"annotations": {"a/b/c": "x"}}),
        field=f"{TEMPLATE}.metadata.annotations",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="a storage class that is no name",
        body=claim_template(storageClassName="A b"),
        field=f"{TEMPLATE}.spec.storageClassName",
        words="must be a StorageClass's name",
    ),
    Invalid(
        name="a claim of no size",
        body=claim_template(resources={"requests": {"cpu": "1"}}),
        field=f"{TEMPLATE}.spec.resources.requests.storage",
        words="Required value",
        model_words="Field required",
    ),
    Invalid(
        name="a claim of nothing",
        body=claim_template(resources={"requests": {"storage": "0Gi"}}),
        field=f"{TEMPLATE}.spec.resources.requests.storage",
        words="should match",
    ),
    Invalid(
        name="a claim that one pod mounts and others too",
        body=claim_template(accessModes=["ReadWriteOncePod", "ReadWriteMany"]),
        field=f"{TEMPLATE}.spec.accessModes",
        words="goes with no other mode",
    ),
    *(
        Invalid(
            name=f"a resource called {name[:12]}",
            body=backend(resources={"limits": {name: "1"}}),
            field="spec.resources.limits",
            words="must be a resource such as cpu or nvidia.com/gpu",
        )
        for name in ("a//b", "../../x", "a b", "x" * 1100 + "/y")
    ),
    Invalid(
        name="a resource of the limiter that has no name",
        body=backend(limiter={"resources": {"requests": {"": "1"}}}),
        field="spec.limiter.resources.requests",
        words="must be a resource such as cpu or nvidia.com/gpu",
    ),
    Invalid(
        name="affinity as text",
        body=pod(affinity="spread"),
        field="spec.pod.affinity",
        words="must be of type object",
        model_words="an object",
    ),
    Invalid(
        name="an affinity that is a list",
        body=pod(affinity={"nodeAffinity": []}),
        field="spec.pod.affinity.nodeAffinity",
        words="must be of type object",
        model_words="an object",
    ),
    Invalid(
        name="an affinity of another type inside",
        body=pod(affinity={"nodeAffinity": {REQUIRED: "x"}}),
        field=f"spec.pod.affinity.nodeAffinity.{REQUIRED}",
        words="must be of type object",
        model_words="an object",
    ),
    Invalid(
        name="terms of nodes with a letter missing",
        body=pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerm": []}}}),
        field=f"spec.pod.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        words="Required value",
        model_words="Field required",
    ),
    Invalid(
        name="no terms of nodes",
        body=pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
        field=f"spec.pod.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        words="at least 1 item",
    ),
    Invalid(
        name="a comparison of nodes with several numbers",
        body=node_labels({"key": "cores", "operator": "Gt", "values": ["1", "2"]}),
        field=f"{NODE_LABELS}.values",
        words="`Gt` and `Lt` one",
    ),
    Invalid(
        name="a comparison of nodes with nothing",
        body=node_labels({"key": "disk", "operator": "In"}),
        field=f"{NODE_LABELS}.values",
        words="`In` and `NotIn` take `values`",
    ),
    Invalid(
        name="a label of nodes in an affinity that is none",
        body=node_labels({"key": "a b", "operator": "Exists"}),
        field=f"{NODE_LABELS}.key",
        words="should match",
    ),
    Invalid(
        name="a node by another field",
        body=pod(
            affinity={
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.namespace", "operator": "In", "values": ["x"]}]}
                        ]
                    }
                }
            }
        ),
        field=f"spec.pod.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchFields[0].key",
        words='supported values: "metadata.name"',
        model_words="'metadata.name'",
    ),
    Invalid(
        name="a weight with a fraction",
        body=pod(affinity={"podAntiAffinity": {PREFERRED: [{"weight": 1.5, "podAffinityTerm": PLACE}]}}),
        field=f"spec.pod.affinity.podAntiAffinity.{PREFERRED}[0].weight",
        words="must be of type integer",
        model_words="valid integer",
    ),
    Invalid(
        name="a weight of nothing",
        body=pod(affinity={"podAntiAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": PLACE}]}}),
        field=f"spec.pod.affinity.podAntiAffinity.{PREFERRED}[0].weight",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="an affinity without a place",
        body=pods(topologyKey=""),
        field=f"{POD_TERM}.topologyKey",
        words="should match",
    ),
    Invalid(
        name="an affinity in a namespace that is none",
        body=pods(namespaces=["Team_A"]),
        field=f"{POD_TERM}.namespaces[0]",
        words="should match",
    ),
    Invalid(
        name="an affinity to labels that are none",
        body=pods(labelSelector={"matchLabels": {"my team": "a"}}),
        field=f"{POD_TERM}.labelSelector.matchLabels",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="an affinity to namespaces whose label has a value and needs none",
        body=pods(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        field=f"{POD_TERM}.namespaceSelector.matchExpressions[0].values",
        words="the others none",
    ),
    Invalid(
        name="root",
        body=pod(securityContext={"runAsUser": 0}),
        field="spec.pod.securityContext.runAsUser",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="a Secret for images without a name",
        body=pod(imagePullSecrets=[{}]),
        field="spec.pod.imagePullSecrets[0].name",
        words="Required value",
        model_words="Field required",
    ),
    Invalid(
        name="a runtime class that is no name",
        body=pod(runtimeClassName="NVIDIA"),
        field="spec.pod.runtimeClassName",
        words="must be an object's name",
    ),
)

_ADMISSION = (
    Invalid(
        name="a mode that does not exist",
        body=admission(mode="DryRun"),
        field="spec.admission.mode",
        words='supported values: "Enforce", "Shadow", "Disabled"',
        model_words="'Enforce', 'Shadow' or 'Disabled'",
    ),
    Invalid(
        name="a start above the maximum",
        body=vllm(admission={"concurrency": {"initial": 9, "maximum": 8}}),
        field="spec.admission.concurrency.initial",
        words="write minimum <= initial <= maximum",
    ),
    Invalid(
        name="a start below the minimum",
        body=vllm(admission={"concurrency": {"initial": 1, "minimum": 2}}),
        field="spec.admission.concurrency.minimum",
        words="write minimum <= initial <= maximum",
    ),
    Invalid(
        name="a minimum above the maximum",
        body=vllm(admission={"concurrency": {"minimum": 9, "maximum": 8}}),
        field="spec.admission.concurrency.minimum",
        words="`minimum` is more than `maximum`",
    ),
    Invalid(
        name="a limit of no requests",
        body=admission(concurrency={"maximum": 0}),
        field="spec.admission.concurrency.maximum",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="more requests than llama.cpp has slots",
        body=admission(concurrency={"maximum": 5}),
        field="spec.admission.concurrency",
        words="`engine.maxConcurrency` requests at a time (4 unless set); raise that",
    ),
    Invalid(
        name="no class for requests without one",
        body=classes({"name": "gold"}),
        field="spec.admission.priorityClasses",
        words="one class must be named `normal`",
    ),
    Invalid(
        name="a class twice",
        body=classes({"name": "normal"}, {"name": "normal"}),
        field="spec.admission.priorityClasses[1]",
        words="Duplicate value",
        model_field="spec.admission.priorityClasses",
        model_words="`name` repeats: normal",
    ),
    Invalid(
        name="more reserved than there is",
        body=classes({"name": "normal", "reservedPercent": 60}, {"name": "gold", "reservedPercent": 41}),
        field="spec.admission.priorityClasses",
        words="may add up to 100 at most",
    ),
    Invalid(
        name="more reserved than the class may use",
        body=classes({"name": "normal", "ceilingPercent": 50, "reservedPercent": 51}),
        field="spec.admission.priorityClasses[0].reservedPercent",
        words="more than `ceilingPercent` lets the class use",
    ),
    Invalid(
        name="a ceiling of nothing",
        body=classes({"name": "normal", "ceilingPercent": 0}),
        field="spec.admission.priorityClasses[0].ceilingPercent",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="a class with a space",
        body=classes({"name": "normal"}, {"name": "very high"}),
        field="spec.admission.priorityClasses[1].name",
        words="must be lower-case letters, digits and `-`",
    ),
    Invalid(
        name="a quota without a limit",
        body=admission(rateLimits=[{"name": "all"}]),
        field="spec.admission.rateLimits[0].limit",
        words="Required value",
        model_words="Field required",
    ),
    Invalid(
        name="a quota of nothing",
        body=limit(limit=0),
        field="spec.admission.rateLimits[0].limit",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="a burst of nothing",
        body=limit(burst=0),
        field="spec.admission.rateLimits[0].burst",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="a burst in a window",
        body=limit(burst=20, algorithm="FixedWindow"),
        field="spec.admission.rateLimits[0].burst",
        words="`burst` belongs to TokenBucket and LeakyBucket",
    ),
    Invalid(
        name="a window of no length",
        body=limit(windowSeconds=0),
        field="spec.admission.rateLimits[0].windowSeconds",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="a unit that does not exist",
        body=limit(unit="Bytes"),
        field="spec.admission.rateLimits[0].unit",
        words='supported values: "Requests", "Tokens", "PromptTokens", "Connections", "OpenConnections"',
        model_words="'Requests', 'Tokens', 'PromptTokens', 'Connections' or 'OpenConnections'",
    ),
    Invalid(
        name="connections of a tenant",
        body=limit(unit="Connections", per="Tenant"),
        field="spec.admission.rateLimits[0].per",
        words="a connection belongs to no tenant",
    ),
    Invalid(
        name="a quota twice",
        body=admission(rateLimits=[{"name": "all", "limit": 1}, {"name": "all", "limit": 2}]),
        field="spec.admission.rateLimits[1]",
        words="Duplicate value",
        model_field="spec.admission.rateLimits",
        model_words="`name` repeats: all",
    ),
    Invalid(
        name="a cache that may be more than full",
        body=admission(adaptive={"targets": {"kvCachePercent": 100}}),
        field="spec.admission.adaptive.targets.kvCachePercent",
        words="less than or equal to 99",
    ),
    Invalid(
        name="a password in a store's URL",
        body=admission(sharedStore={"redis": {"url": "redis://:secret@redis:6379/0"}}),
        field="spec.admission.sharedStore.redis.url",
        words="without credentials; put a URL with a password into a Secret",
    ),
    Invalid(
        name="a store that speaks something else",
        body=admission(sharedStore={"redis": {"url": "http://redis:6379"}}),
        field="spec.admission.sharedStore.redis.url",
        words="must be redis://host:port/database",
    ),
    Invalid(
        name="a store without an address",
        body=admission(sharedStore={"redis": {}}),
        field="spec.admission.sharedStore.redis",
        words="write exactly one of `url` and `secretRef`",
    ),
    Invalid(
        name="a store with two addresses",
        body=admission(sharedStore={"redis": {"url": "redis://r:6379", "secretRef": {"name": "r"}}}),
        field="spec.admission.sharedStore.redis",
        words="write exactly one of `url` and `secretRef`",
    ),
)

_TENANTS = (
    Invalid(
        name="keys that are nowhere",
        body=tenants(identifyBy="ApiKey"),
        field="spec.tenants.identifyBy",
        words="needs `keysSecretRef`, or `default` to let everyone in",
    ),
    Invalid(
        name="keys that nobody looks at",
        body=tenants(identifyBy="ClientAddress", **KEYS),
        field="spec.tenants.keysSecretRef",
        words="belongs to `identifyBy: ApiKey`",
    ),
    Invalid(
        name="a header without its name",
        body=tenants(identifyBy="Header", trustedProxies=["10.0.0.0/8"]),
        field="spec.tenants.identifyBy",
        words="needs `header`, the header that names the tenant",
    ),
    Invalid(
        name="a header that anyone can send",
        body=tenants(identifyBy="Header", header="x-tenant"),
        field="spec.tenants.identifyBy",
        words="needs `trustedProxies`: from anyone else the header is not believed",
    ),
    Invalid(
        name="a header that nobody looks at",
        body=tenants(**KEYS, header="x-tenant"),
        field="spec.tenants.header",
        words="belongs to `identifyBy: Header`",
    ),
    Invalid(
        name="a header with another meaning",
        body=tenants(identifyBy="Header", header="Authorization", trustedProxies=["10.0.0.0/8"]),
        field="spec.tenants.header",
        words="this header has another meaning",
    ),
    Invalid(
        name="a header that is none",
        body=tenants(identifyBy="Header", header="x tenant", trustedProxies=["10.0.0.0/8"]),
        field="spec.tenants.header",
        words="must be a header's name",
    ),
    Invalid(
        name="a network without its length",
        body=tenants(**KEYS, trustedProxies=["10.0.0.1"]),
        field="spec.tenants.trustedProxies[0]",
        words="must be a network such as 10.0.0.0/8",
    ),
    Invalid(
        name="a network that is none",
        body=tenants(**KEYS, trustedProxies=["10.0.0.256/8"]),
        field="spec.tenants.trustedProxies[0]",
        words="must be a network such as 10.0.0.0/8",
    ),
    Invalid(
        name="a network longer than an address",
        body=tenants(**KEYS, trustedProxies=["fd00::/129"]),
        field="spec.tenants.trustedProxies[0]",
        words="must be a network such as 10.0.0.0/8",
    ),
    Invalid(
        name="a class of tenants twice",
        body=tenants(**KEYS, classes=[{"name": "gold", "tenants": ["a"]}, {"name": "gold", "tenants": ["b"]}]),
        field="spec.tenants.classes[1]",
        words="Duplicate value",
        model_field="spec.tenants.classes",
        model_words="`name` repeats: gold",
    ),
    Invalid(
        name="a class without tenants",
        body=tenants(**KEYS, classes=[{"name": "gold", "tenants": []}]),
        field="spec.tenants.classes[0].tenants",
        words="at least 1 items",
        model_words="at least 1 item",
    ),
    Invalid(
        name="a star in the middle of a tenant's name",
        body=tenant_class(tenants=["team-*-eu"]),
        field="spec.tenants.classes[0].tenants[0]",
        words="with a `*` at the end, such as team-*",
    ),
    Invalid(
        name="a tenant without weight",
        body=tenant_class(weight=0),
        field="spec.tenants.classes[0].weight",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="a priority class that does not exist",
        body=tenant_class(priorityClass="urgent"),
        field="spec.tenants.classes",
        words="without that list there are interactive, normal and batch",
    ),
    Invalid(
        name="a choice of a priority class that does not exist",
        body=tenant_class(allowedPriorityClasses=["urgent"]),
        field="spec.tenants.classes",
        words="name entries of `admission.priorityClasses`",
    ),
    Invalid(
        name="a default in a priority class that was replaced",
        body=backend(
            admission={"priorityClasses": [{"name": "normal"}]},
            tenants={**KEYS, "default": {"priorityClass": "batch"}},
        ),
        field="spec.tenants.default",
        words="name entries of `admission.priorityClasses`",
    ),
    Invalid(
        name="connections in a tenant's quota",
        body=tenant_class(rateLimits=[{"name": "all", "limit": 1, "unit": "Connections"}]),
        field="spec.tenants.classes[0].rateLimits[0].unit",
        words="a connection belongs to no tenant",
    ),
)

_LIFE = (
    Invalid(
        name="a backend that is its own fallback",
        body=backend(name="loop", resilience={"fallback": [{"name": "loop"}]}),
        field="spec.resilience.fallback",
        words="a backend cannot be its own fallback",
    ),
    Invalid(
        name="a fallback twice",
        body=backend(resilience={"fallback": [{"name": "b"}, {"name": "b"}]}),
        field="spec.resilience.fallback[1]",
        words="Duplicate value",
        model_field="spec.resilience.fallback",
        model_words="`name` repeats: b",
    ),
    Invalid(
        name="too many retries",
        body=backend(resilience={"retries": {"maximum": 9}}),
        field="spec.resilience.retries.maximum",
        words="less than or equal to 3",
    ),
    Invalid(
        name="a breaker that stays open longer than it may",
        body=backend(resilience={"breaker": {"openSeconds": 61}}),
        field="spec.resilience.breaker.openSeconds",
        words="more than `maximumOpenSeconds`",
    ),
    Invalid(
        name="a stall at once",
        body=backend(health={"stallTimeoutSeconds": 0}),
        field="spec.health.stallTimeoutSeconds",
        words="greater than or equal to 5",
    ),
    Invalid(
        name="an unknown warm-up",
        body=backend(health={"warmup": "Ping"}),
        field="spec.health.warmup",
        words='supported values: "Auto", "Chat", "Completions", "Embeddings", "Disabled"',
        model_words="'Embeddings' or 'Disabled'",
    ),
    Invalid(
        name="a drain that is too long",
        body=backend(drain={"lameDuckSeconds": 600, "timeoutSeconds": 7000}),
        field="spec.drain",
        words="may add up to 7200 seconds (two hours) at most",
    ),
    Invalid(
        name="a drain that is too long with the default lame duck",
        body=backend(drain={"timeoutSeconds": 7200}),
        field="spec.drain",
        words="two hours",
    ),
    Invalid(
        name="a budget that blocks for ever",
        body=backend(disruption={"maxUnavailable": 0}),
        field="spec.disruption.maxUnavailable",
        words="greater than or equal to 1",
    ),
    Invalid(
        name="a strategy of Deployments",
        body=backend(rollout={"strategy": "Recreate"}),
        field="spec.rollout.strategy",
        words='supported values: "Auto", "Surge", "InPlace"',
        model_words="'Auto', 'Surge' or 'InPlace'",
    ),
    Invalid(
        name="a deadline of a second",
        body=backend(rollout={"progressDeadlineSeconds": 1}),
        field="spec.rollout.progressDeadlineSeconds",
        words="greater than or equal to 15",
    ),
    Invalid(
        name="an unknown upgrade policy",
        body=backend(upgradePolicy="Never"),
        field="spec.upgradePolicy",
        words='supported values: "OnSpecChange", "Rolling"',
        model_words="'OnSpecChange' or 'Rolling'",
    ),
    Invalid(
        name="a port that does not exist",
        body=backend(service={"port": 70000}),
        field="spec.service.port",
        words="less than or equal to 65535",
    ),
    Invalid(
        name="a Service that is an alias",
        body=backend(service={"type": "ExternalName"}),
        field="spec.service.type",
        words='supported values: "ClusterIP", "NodePort", "LoadBalancer"',
        model_words="'ClusterIP', 'NodePort' or 'LoadBalancer'",
    ),
    Invalid(
        name="an annotation of the Service that is none",
        body=backend(service={"annotations": {"-x": "y"}}),
        field="spec.service.annotations",
        words="must be a key such as team or example.com/team",
    ),
    Invalid(
        name="a label of the PodMonitor that is Penstock's",
        body=backend(monitoring={"labels": {"app.kubernetes.io/managed-by": "x"}}),
        field="spec.monitoring.labels",
        words="this key is Penstock's own",
    ),
    Invalid(
        name="a network policy as a truth value",
        body=backend(networkPolicy=True),
        field="spec.networkPolicy",
        words="must be of type string",
        model_words="'Enabled' or 'Disabled'",
    ),
    Invalid(
        name="an unknown log level",
        body=backend(limiter={"logLevel": "Trace"}),
        field="spec.limiter.logLevel",
        words='supported values: "Debug", "Info", "Warning", "Error"',
        model_words="'Warning' or 'Error'",
    ),
)

REFUSED = (*_WHOLE, *_ENGINE, *_MODEL, *_POD, *_ADMISSION, *_TENANTS, *_LIFE)
"""Refused by the API server and by the model."""


def arguments(*words: str) -> dict[str, Any]:
    """Return a backend for llama.cpp with these arguments."""
    return backend(engine={"type": "LlamaCpp", "args": list(words)})


def mounted(path: str) -> dict[str, Any]:
    """Return a backend with a volume at a path."""
    return pod(volumes=[{"name": "x", "emptyDir": {}}], volumeMounts=[{"name": "x", "mountPath": path}])


STALLED = (
    Invalid(
        name="the beginning of an owned argument of vLLM",
        body=vllm(args=["--seed", "7", "--hos=0.0.0.0"]),
        field="spec.engine.args[2]",
        words="short for `--host`",
    ),
    Invalid(
        name="an owned argument of vLLM with underscores",
        body=vllm(args=["--max_model_len=64"]),
        field="spec.engine.args[0]",
        words="set `spec.engine.contextLength`",
    ),
    Invalid(
        name="an owned argument of vLLM with its value attached",
        body=vllm(args=["-n2"]),
        field="spec.engine.args[0]",
        words="one replica is one pod",
    ),
    Invalid(
        name="an owned argument of llama.cpp in its short form",
        body=arguments("-np", "8"),
        field="spec.engine.args[0]",
        words="set `spec.engine.maxConcurrency`",
    ),
    Invalid(
        name="an owned argument of llama.cpp with underscores",
        body=arguments("--ctx_size", "64"),
        field="spec.engine.args[0]",
        words="set `spec.engine.contextLength`",
    ),
    Invalid(
        name="an argument that kubelet fills in",
        body=vllm(args=["$(EXTRA)"]),
        field="spec.engine.args[0]",
        words="write the value itself",
    ),
    Invalid(
        name="a variable that moves the engine's port",
        body=backend(engine={"type": "LlamaCpp", "env": [{"name": "AIP_HTTP_PORT", "value": "1"}]}),
        field="spec.engine.env[0].name",
        words="remove it",
    ),
    Invalid(
        name="a version that is none",
        body=vllm(engine={"version": "latest"}),
        field="spec.engine.version",
        words="no vLLM release; write `0.32.0`",
    ),
    Invalid(
        name="a version that is too old",
        body=backend(engine={"type": "LlamaCpp", "version": "b4000"}),
        field="spec.engine.version",
        words="b5000 or newer",
    ),
    Invalid(
        name="a mount over the model",
        body=mounted("/model"),
        field="spec.pod.volumeMounts[0].mountPath",
        words="the model is mounted there",
    ),
    Invalid(
        name="a mount over a folder of the engine",
        body=mounted("/tmp/"),
        field="spec.pod.volumeMounts[0].mountPath",
        words="mount below it or choose another path",
    ),
    Invalid(
        name="keys that narrow no selector",
        body=pods(matchLabelKeys=["pod-template-hash"]),
        field=f"{POD_TERM}.labelSelector",
        words="`matchLabelKeys` and `mismatchLabelKeys` narrow it",
    ),
    Invalid(
        name="a key that must match and must not",
        body=pods(labelSelector={}, matchLabelKeys=["a", "b"], mismatchLabelKeys=["b"]),
        field=f"{POD_TERM}.mismatchLabelKeys",
        words="`b` is in `matchLabelKeys` too",
    ),
    Invalid(
        name="a device that only quotas know",
        body=backend(resources={"limits": {"requests.example.com/gpu": 1}}),
        field="spec.resources.limits.requests.example.com/gpu",
        words="write the device itself, such as nvidia.com/gpu",
    ),
    Invalid(
        name="half a GPU",
        body=vllm(resources={"limits": {GPU: "500m"}}),
        field=f"spec.resources.limits.{GPU}",
        words="devices cannot be divided",
    ),
    Invalid(
        name="a device without its domain",
        body=vllm(resources={"limits": {"gpu": 1}}),
        field="spec.resources.limits.gpu",
        words="a device such as nvidia.com/gpu",
    ),
    Invalid(
        name="a device that is only requested",
        body=vllm(resources={"requests": {GPU: 1}}),
        field=f"spec.resources.requests.{GPU}",
        words="devices are asked for by their limit",
    ),
    Invalid(
        name="more requested than allowed",
        body=backend(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
        field="spec.resources.requests.memory",
        words="more than the limit `1Gi`",
    ),
    Invalid(
        name="a prompt cache as large as the memory",
        body=backend(
            engine={"type": "LlamaCpp", "llamaCpp": {"cacheRamMebibytes": 1024}},
            resources={"limits": {"memory": "1Gi"}},
        ),
        field="spec.engine.llamaCpp.cacheRamMebibytes",
        words="counts against the memory limit",
    ),
    Invalid(
        name="shared memory larger than the memory",
        body=vllm(pod={"sharedMemoryMebibytes": 2048}, resources={"limits": {"memory": "1Gi"}}),
        field="spec.pod.sharedMemoryMebibytes",
        words="counts against the memory limit",
    ),
    Invalid(
        name="a limiter without memory",
        body=backend(limiter={"resources": {"limits": {"memory": "16Mi"}}}),
        field="spec.limiter.resources.limits.memory",
        words="64Mi or more",
    ),
    Invalid(
        name="bodies that the limiter cannot hold",
        body=backend(limiter={"maximumBodyMebibytes": 512}),
        field="spec.limiter.maximumBodyMebibytes",
        words="40 % of the memory limit",
    ),
    Invalid(
        name="an IPv6 network with two gaps",
        body=tenants(**KEYS, trustedProxies=["10.0.0.0/8", "fd00::1::/64"]),
        field="spec.tenants.trustedProxies[1]",
        words="is no network",
    ),
    Invalid(
        name="a tenant in two classes",
        body=tenants(
            **KEYS,
            classes=[{"name": "gold", "tenants": ["acme"]}, {"name": "free", "tenants": ["x", "acme"]}],
        ),
        field="spec.tenants.classes[1].tenants[1]",
        words="is in class `gold` already",
    ),
)
"""Stored by the API server, and found by the operator."""
