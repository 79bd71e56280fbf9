"""Backends with all features on, one for each engine, source and cache: what must pass every check of the cluster."""

from typing import Any

from tests.resources.fields import LLAMA_CPP, VLLM

HUB = {"huggingFace": {"repository": "o/m", "file": "m.gguf", "tokenSecretRef": {"name": "hub"}}}

MODELS: dict[str, dict[str, Any]] = {
    "baked": {"source": {"baked": {"path": "/m.gguf"}}},
    "claim": {"source": {"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}},
    "image": {"source": {"image": {"reference": "registry.example/m:1", "path": "/m.gguf"}}},
    "hub": {"source": HUB, "sizeMebibytes": 1024},
    "hub into a claim": {"source": HUB, "cache": {"persistentVolumeClaim": {"claimName": "c"}}},
    "hub into a volume of its own": {
        "source": HUB,
        "cache": {"ephemeral": {"storageClassName": "fast", "sizeMebibytes": 1024}},
    },
}

TUNING: dict[str, dict[str, Any]] = {
    "LlamaCpp": {
        **LLAMA_CPP,
        "llamaCpp": {"gpuLayers": 99, "threads": 4, "cacheRamMebibytes": 64, "flashAttention": "Enabled"},
    },
    "VLLM": {
        **VLLM,
        "vllm": {
            "tensorParallelSize": 2,
            "gpuMemoryUtilizationPercent": 80,
            "maxNumBatchedTokens": 4096,
            "enforceEager": True,
        },
    },
}

FEATURES: dict[str, Any] = {
    "replicas": 3,
    "resources": {
        "requests": {"cpu": "2", "memory": "8Gi"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "2"},
    },
    "pod": {
        "labels": {"team": "a"},
        "annotations": {"example.com/owner": "a"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [
            {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "spot", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                ]
            },
        },
        "topologySpreadConstraints": [
            {"topologyKey": "kubernetes.io/hostname"},
            {
                "topologyKey": "topology.kubernetes.io/zone",
                "maxSkew": 2,
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Honor",
            },
        ],
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
        "imagePullSecrets": [{"name": "pull"}],
        "securityContext": {
            "runAsUser": 1234,
            "runAsGroup": 1234,
            "fsGroup": 1234,
            "fsGroupChangePolicy": "Always",
            "supplementalGroups": [44],
            "seLinuxOptions": {"level": "s0:c1,c2", "type": "container_t"},
        },
        "volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}], "defaultMode": 288}},
            {"name": "secret", "secret": {"secretName": "s", "optional": True}},
            {"name": "empty", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            {"name": "csi", "csi": {"driver": "csi.example", "volumeAttributes": {"a": "b"}}},
            {
                "name": "ephemeral",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    }
                },
            },
        ],
        "volumeMounts": [
            {"name": name, "mountPath": f"/mounted/{name}"}
            for name in ("claim", "config", "secret", "empty", "csi", "ephemeral")
        ],
        "sharedMemoryMebibytes": 64,
    },
    "service": {"port": 8080, "type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
    "limiter": {
        "image": "own:2",
        "logLevel": "Debug",
        "maximumBodyMebibytes": 8,
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "512Mi"}},
    },
    "admission": {
        "mode": "Shadow",
        "concurrency": {"minimum": 1, "initial": 2, "maximum": 3},
        "priorityClasses": [{"name": "normal", "reservedPercent": 10}, {"name": "low", "sheddable": True}],
        "rateLimits": [{"name": "q", "limit": 10, "unit": "Tokens", "burst": 20}],
        "sharedStore": {"redis": {"secretRef": {"name": "store"}}},
    },
    "tenants": {
        "keysSecretRef": {"name": "keys"},
        "trustedProxies": ["10.0.0.0/8"],
        "classes": [{"name": "a", "tenants": ["t-*"], "priorityClass": "low"}],
    },
    "resilience": {"fallback": [{"name": "other"}], "streamRecovery": "Resume"},
    "health": {"startupTimeoutSeconds": 600, "stallTimeoutSeconds": 30, "warmup": "Chat"},
    "drain": {"lameDuckSeconds": 5, "timeoutSeconds": 60},
    "disruption": {"maxUnavailable": 1},
    "rollout": {"strategy": "InPlace", "progressDeadlineSeconds": 900},
    "monitoring": {"podMonitor": "Enabled", "labels": {"release": "prometheus"}},
    "networkPolicy": "Enabled",
}


def spec(engine: str, model: str, *, features: bool) -> dict[str, Any]:
    """Return the spec of a backend with an engine and a model's source, with all features on or with none."""
    plain = {"engine": {**LLAMA_CPP} if engine == "LlamaCpp" else {**VLLM}, "model": {"name": "m", **MODELS[model]}}
    if not features:
        return plain
    tuned = {**TUNING[engine], "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
    return {**plain, "engine": tuned, **FEATURES}
