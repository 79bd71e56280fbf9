"""Objects that together use every field of the spec, so that a field without any example is noticed."""

from __future__ import annotations

from typing import Any

from tests.api.examples import backend, vllm

_EVERY_VOLUME = [
    {"name": "a", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
    {
        "name": "b",
        "configMap": {
            "name": "c",
            "items": [{"key": "k", "path": "f/k", "mode": 292}],
            "defaultMode": 420,
            "optional": True,
        },
    },
    {
        "name": "c",
        "secret": {
            "secretName": "s",
            "items": [{"key": "k", "path": "k", "mode": 256}],
            "defaultMode": 256,
            "optional": False,
        },
    },
    {"name": "d", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {
        "name": "e",
        "csi": {
            "driver": "d.example",
            "readOnly": True,
            "fsType": "ext4",
            "volumeAttributes": {"x": "y"},
            "nodePublishSecretRef": {"name": "s"},
        },
    },
    {
        "name": "f",
        "ephemeral": {
            "volumeClaimTemplate": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "fast",
                    "resources": {"requests": {"storage": "10Gi"}, "limits": {"storage": "20Gi"}},
                },
            }
        },
    },
]

_SELECTOR = {
    "matchLabels": {"app.kubernetes.io/name": "cache", "empty": ""},
    "matchExpressions": [
        {"key": "team", "operator": "In", "values": ["search", "x" * 63]},
        {"key": f"{'x' * 189}/{'y' * 63}", "operator": "DoesNotExist"},
    ],
}

_POD_TERM = {
    "topologyKey": "topology.kubernetes.io/zone",
    "labelSelector": _SELECTOR,
    "namespaces": ["models"],
    "namespaceSelector": _SELECTOR,
    "matchLabelKeys": ["pod-template-hash"],
    "mismatchLabelKeys": ["tenant"],
}

_POD_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": _POD_TERM},
        {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}},
    ],
}

_NODE_TERM = {
    "matchExpressions": [
        {"key": "cloud.google.com/gke-accelerator", "operator": "NotIn", "values": ["nvidia-t4", ""]},
        {"key": "cores", "operator": "Gt", "values": ["7"]},
        {"key": "spot", "operator": "Exists"},
    ],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1.example"]}],
}

_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODE_TERM, {}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": _NODE_TERM}],
    },
    "podAffinity": _POD_AFFINITY,
    "podAntiAffinity": _POD_AFFINITY,
}

_POD = {
    "labels": {"team": "search", "example.com/cost-centre": "42"},
    "annotations": {"example.com/note": "any text at all"},
    "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "tolerations": [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "pool", "operator": "Equal", "value": "gpu", "effect": "NoExecute", "tolerationSeconds": 60},
    ],
    "affinity": _AFFINITY,
    "topologySpreadConstraints": [
        {
            "topologyKey": "topology.kubernetes.io/zone",
            "maxSkew": 2,
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 2,
            "nodeAffinityPolicy": "Honor",
            "nodeTaintsPolicy": "Ignore",
        }
    ],
    "priorityClassName": "serving",
    "runtimeClassName": "nvidia",
    "schedulerName": "gang-scheduler",
    "serviceAccountName": "models",
    "imagePullSecrets": [{"name": "registry"}],
    "securityContext": {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "supplementalGroups": [44, 110],
        "seLinuxOptions": {"level": "s0:c1,c2", "role": "r", "type": "t", "user": "u"},
    },
    "volumes": _EVERY_VOLUME,
    "volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "x.d/y", "readOnly": True}],
    "sharedMemoryMebibytes": 64,
}

_QUOTA = {"unit": "Tokens", "algorithm": "LeakyBucket", "limit": 10**10, "windowSeconds": 86400, "burst": 1000}

_ADMISSION = {
    "mode": "Shadow",
    "concurrency": {"initial": 4, "minimum": 2, "maximum": 8},
    "queue": {"maxRequests": 0, "maxWaitSeconds": 5},
    "overloadStatus": "TooManyRequests",
    "priorityClasses": [
        {"name": "gold", "ceilingPercent": 100, "reservedPercent": 50, "sheddable": False, "maxWaitSeconds": 1},
        {"name": "normal", "ceilingPercent": 50, "reservedPercent": 50, "sheddable": True},
    ],
    "rateLimits": [
        {"name": "all", "limit": 600, "algorithm": "SlidingWindow", "per": "Replica"},
        {"name": "tokens", "per": "Tenant", **_QUOTA},
        {"name": "dials", "unit": "Connections", "per": "Address", "limit": 10, "windowSeconds": 1},
    ],
    "adaptive": {
        "mode": "Fixed",
        "targets": {"waitingRequests": 1, "kvCachePercent": 90, "timeToFirstTokenMilliseconds": 500},
        "maximumUtilizationPercent": 70,
    },
    "retryBudgetPercent": 0,
    "sharedStore": {"redis": {"url": "redis://redis.cache.svc:6379/0"}},
}

_TENANT_LIMITS = {
    "weight": 10,
    "priorityClass": "gold",
    "allowedPriorityClasses": ["normal"],
    "rateLimits": [{"name": "tokens", **_QUOTA}],
}

EVERY_FIELD_OF_LLAMA_CPP: dict[str, Any] = backend(
    engine={
        "type": "LlamaCpp",
        "image": "registry.example:5000/llama:server-b11434",
        "version": "b11434",
        "args": ["--jinja", "-b", "512"],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": False}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
        ],
        "contextLength": 8192,
        "maxConcurrency": 8,
        "llamaCpp": {"gpuLayers": 99, "threads": 4, "cacheRamMebibytes": 512, "flashAttention": "Enabled"},
    },
    model={
        "name": "tiny",
        "aliases": ["acme/tiny", "default"],
        "source": {
            "huggingFace": {
                "repository": "acme/tiny-gguf",
                "revision": "refs/pr/7",
                "file": "q8/tiny-q8_0.gguf",
                "tokenSecretRef": {"name": "hub", "key": "hf"},
                "endpoint": "http://hub.models.svc:8080/mirror",
            }
        },
        "cache": {"persistentVolumeClaim": {"claimName": "models"}},
        "sizeMebibytes": 150,
    },
    replicas=3,
    resources={"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"cpu": 2, "memory": "2Gi"}},
    pod=_POD,
    service={"port": 8080, "type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
    limiter={
        "image": "registry.example/penstock@sha256:" + "0" * 64,
        "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "512Mi"}},
        "logLevel": "Debug",
        "maximumBodyMebibytes": 64,
    },
    admission=_ADMISSION,
    tenants={
        "identifyBy": "ApiKey",
        "trustedProxies": ["10.0.0.0/8", "fd00::/8"],
        "keysSecretRef": {"name": "keys"},
        "default": {**_TENANT_LIMITS, "weight": 2},
        "classes": [{"name": "partners", "tenants": ["acme", "team-*"], **_TENANT_LIMITS}],
    },
    resilience={
        "retries": {"maximum": 2},
        "breaker": {
            "consecutiveFailures": 3,
            "openSeconds": 1,
            "maximumOpenSeconds": 10,
            "halfOpenProbes": 2,
            "successesToClose": 3,
        },
        "spillover": "Disabled",
        "fallback": [{"name": "small"}],
        "streamRecovery": "Resume",
    },
    health={"startupTimeoutSeconds": 60, "stallTimeoutSeconds": 5, "warmup": "Chat"},
    drain={"lameDuckSeconds": 0, "timeoutSeconds": 7200},
    disruption={"budget": "Disabled", "maxUnavailable": 2, "blockAtMostSeconds": 0},
    rollout={"strategy": "InPlace", "progressDeadlineSeconds": 120, "autoRollback": "Disabled"},
    upgradePolicy="Rolling",
    monitoring={"podMonitor": "Enabled", "labels": {"release": "prometheus"}},
    networkPolicy="Enabled",
    paused=True,
    suspend=True,
)

EVERY_FIELD_OF_VLLM: dict[str, Any] = vllm(
    engine={
        "vllm": {
            "tensorParallelSize": 2,
            "pipelineParallelSize": 2,
            "dataParallelSize": 2,
            "gpuMemoryUtilizationPercent": 80,
            "maxNumBatchedTokens": 4096,
            "enforceEager": True,
        }
    },
    resources={"limits": {"nvidia.com/gpu": "8"}},
    admission={"sharedStore": {"redis": {"secretRef": {"name": "redis", "key": "address"}}}},
    tenants={"identifyBy": "Header", "header": "x-team", "trustedProxies": ["192.168.0.1/32"]},
)

OTHER_SOURCES: dict[str, dict[str, Any]] = {
    "a model in an image": vllm(
        model={"name": "m", "source": {"image": {"reference": "registry.example/models/qwen:1", "path": "/qwen"}}}
    ),
    "a model in the engine's image": vllm(model={"name": "m", "source": {"baked": {"path": "/qwen"}}}),
    "a download for each replica": backend(
        model={
            "name": "m",
            "source": {"huggingFace": {"repository": "gpt2", "file": "m.gguf"}},
            "cache": {"ephemeral": {"storageClassName": "fast", "sizeMebibytes": 2000}},
        }
    ),
}

SMALL: dict[str, dict[str, Any]] = {
    "the smallest object": backend(),
    "a short name": backend(name="a"),
    "the longest name": backend(name="a" * 52),
    "vLLM with a model in a claim": vllm(),
    "vLLM with a whole claim": vllm(
        model={"name": "m", "source": {"persistentVolumeClaim": {"claimName": "models", "path": "/"}}}
    ),
    "vLLM with a whole repository": vllm(
        model={"name": "m", "source": {"huggingFace": {"repository": "Qwen/Qwen2.5-7B-Instruct"}}}
    ),
    "vLLM with a whole image": vllm(model={"name": "m", "source": {"image": {"reference": "models/qwen"}}}),
    "GPUs and no ranks": vllm(resources={"limits": {"nvidia.com/gpu": 2, "cpu": "1500m", "memory": "16Gi"}}),
    "ranks and no GPUs": vllm(engine={"vllm": {"tensorParallelSize": 2}}),
    "an empty block": vllm(engine={"vllm": {}}),
    "empty objects": backend(
        admission={"concurrency": {}, "queue": {}, "adaptive": {"targets": {}}},
        resilience={"breaker": {}, "retries": {}},
        pod={},
        drain={},
        health={},
        rollout={},
        disruption={},
        monitoring={},
        service={},
        limiter={},
    ),
    "open to everyone": backend(tenants={"default": {}}),
    "names that look odd and are right": backend(
        resources={"limits": {"example.com/a.b_c": 1}},
        pod={
            "nodeSelector": {"a--b.c/D_e.f": ""},
            "tolerations": [{"key": "x" * 63, "operator": "Exists"}],
            "priorityClassName": "a.b--c",
            "volumes": [
                {"name": "v", "csi": {"driver": "CSI.Example"}},
                {"name": "k", "secret": {"secretName": "s", "items": [{"key": ".a..b", "path": "p"}]}},
                {
                    "name": "e",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "spec": {
                                "accessModes": ["ReadWriteOncePod"],
                                "storageClassName": "",
                                "resources": {"requests": {"storage": 1073741824}},
                            }
                        }
                    },
                },
                {
                    "name": "f",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "spec": {
                                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                                "resources": {"requests": {"storage": "0.5Gi"}},
                            }
                        }
                    },
                },
            ],
        },
    ),
    "each address a tenant": backend(tenants={"identifyBy": "ClientAddress"}),
    "one class of requests": backend(admission={"priorityClasses": [{"name": "normal"}]}),
}

VALID: dict[str, dict[str, Any]] = {
    **SMALL,
    **OTHER_SOURCES,
    "every field of llama.cpp": EVERY_FIELD_OF_LLAMA_CPP,
    "every field of vLLM": EVERY_FIELD_OF_VLLM,
}
