"""Fields of the engine, its model and its resources: the command line, the environment and the volumes of the pod."""

from tests.resources.effects import MADE
from tests.resources.fields import LLAMA_CPP, VLLM, Field, group

UNTAGGED = {"type": "LlamaCpp", "image": "llama.cpp:server"}
SECRET = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}
CONFIG_MAP = {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}}
HUB = {"repository": "o/m", "file": "m.gguf"}
TOKEN = {**HUB, "tokenSecretRef": {"name": "hub"}}


def _env(entry: dict) -> dict:
    return {"engine": {**LLAMA_CPP, "env": [{"name": "X", **entry}]}}


def _model(**parts: object) -> dict:
    return {"model": {"name": "m", **parts}}


ENGINE = (
    Field(
        path="engine.type",
        value="VLLM",
        instead="LlamaCpp",
        where="engine: command",
        expected=["vllm", "serve"],
        rolls=True,
    ),
    Field(path="engine.image", value="own:b9999", where="engine: image", rolls=True),
    Field(
        path="engine.version",
        value="b10000",
        within={"engine": UNTAGGED},
        where="limiter variable: PENSTOCK_ENGINE_VERSION",
        rolls=True,
    ),
    Field(path="engine.args[]", value="--no-mmap", where="engine argument: --no-mmap", expected=MADE, rolls=True),
    Field(
        path="engine.env[].name",
        value="Y",
        instead="Z",
        within=_env({"value": "1"}),
        where="engine variable: Y",
        expected="1",
        rolls=True,
    ),
    Field(path="engine.env[].value", value="1", within=_env({}), where="engine variable: X", rolls=True),
    *group(
        "engine.env[].valueFrom.secretKeyRef.",
        "engine: env[name=X].valueFrom.secretKeyRef.",
        {"name": "other", "key": "other"},
        rolls=True,
        within=_env(SECRET),
        instead="s",
    ),
    Field(
        path="engine.env[].valueFrom.secretKeyRef.optional",
        value=True,
        within=_env(SECRET),
        where="engine: env[name=X].valueFrom.secretKeyRef.optional",
        rolls=True,
    ),
    *group(
        "engine.env[].valueFrom.configMapKeyRef.",
        "engine: env[name=X].valueFrom.configMapKeyRef.",
        {"name": "other", "key": "other"},
        rolls=True,
        within=_env(CONFIG_MAP),
        instead="c",
    ),
    Field(
        path="engine.env[].valueFrom.configMapKeyRef.optional",
        value=True,
        within=_env(CONFIG_MAP),
        where="engine: env[name=X].valueFrom.configMapKeyRef.optional",
        rolls=True,
    ),
    Field(
        path="engine.env[].valueFrom.fieldRef.fieldPath",
        value="metadata.name",
        instead="metadata.uid",
        within=_env({}),
        where="engine: env[name=X].valueFrom.fieldRef.fieldPath",
        rolls=True,
    ),
    Field(path="engine.contextLength", value=2048, where="engine argument: -c", expected="8192", rolls=True),
    Field(path="engine.maxConcurrency", value=8, where="engine argument: -np", expected="8", rolls=True),
    *(
        Field(
            path=f"engine.vllm.{name}",
            value=value,
            within={"engine": VLLM},
            where=f"engine argument: {flag}",
            expected=expected,
            rolls=True,
        )
        for name, value, flag, expected in (
            ("tensorParallelSize", 2, "--tensor-parallel-size", "2"),
            ("pipelineParallelSize", 2, "--pipeline-parallel-size", "2"),
            ("dataParallelSize", 2, "--data-parallel-size", "2"),
            ("gpuMemoryUtilizationPercent", 50, "--gpu-memory-utilization", "0.50"),
            ("maxNumBatchedTokens", 4096, "--max-num-batched-tokens", "4096"),
            ("enforceEager", True, "--enforce-eager", MADE),
        )
    ),
    Field(path="engine.llamaCpp.gpuLayers", value=12, where="engine argument: -ngl", expected="12", rolls=True),
    Field(path="engine.llamaCpp.threads", value=3, where="engine argument: -t", expected="3", rolls=True),
    Field(
        path="engine.llamaCpp.cacheRamMebibytes",
        value=64,
        where="engine variable: LLAMA_ARG_CACHE_RAM",
        expected="64",
        rolls=True,
    ),
    Field(
        path="engine.llamaCpp.flashAttention",
        value="Enabled",
        where="engine variable: LLAMA_ARG_FLASH_ATTN",
        expected="1",
        rolls=True,
    ),
    Field(
        path="resources.requests{}",
        value={"cpu": "500m"},
        where="engine: resources.requests",
        rolls=True,
    ),
    Field(path="resources.limits{}", value={"memory": "1Gi"}, where="engine: resources.limits", rolls=True),
)

MODEL = (
    Field(path="model.name", value="other", instead="m", where="engine argument: -a", rolls=True),
    Field(
        path="model.aliases[]",
        value="n",
        where="limiter variable: PENSTOCK_SERVED_NAMES",
        expected="m,n",
        rolls=True,
    ),
    Field(
        path="model.source.baked.path",
        value="/other.gguf",
        instead="/m.gguf",
        where="engine argument: -m",
        rolls=True,
    ),
    Field(
        path="model.source.persistentVolumeClaim.claimName",
        value="other",
        instead="c",
        within=_model(source={"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}),
        where="pod: volumes[name=penstock-model].persistentVolumeClaim.claimName",
        rolls=True,
    ),
    Field(
        path="model.source.persistentVolumeClaim.path",
        value="/a/m.gguf",
        instead="/m.gguf",
        within=_model(source={"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}),
        where="engine argument: -m",
        expected="/model/a/m.gguf",
        rolls=True,
    ),
    Field(
        path="model.source.image.reference",
        value="registry.example/m:2",
        instead="registry.example/m:1",
        within=_model(source={"image": {"reference": "registry.example/m:1", "path": "/m.gguf"}}),
        where="pod: volumes[name=penstock-model].image.reference",
        rolls=True,
    ),
    Field(
        path="model.source.image.path",
        value="/a",
        within={"engine": VLLM, **_model(source={"image": {"reference": "registry.example/m:1"}})},
        where="engine: args[0]",
        expected="/model/a",
        rolls=True,
    ),
    *(
        Field(
            path=f"model.source.huggingFace.{name}",
            value=value,
            instead=instead,
            within=_model(source={"huggingFace": HUB}),
            where=f"download variable: PENSTOCK_DOWNLOAD_{name.upper()}",
            rolls=True,
        )
        for name, value, instead in (
            ("repository", "o/other", "o/m"),
            ("revision", "v1", "main"),
            ("file", "other.gguf", "m.gguf"),
            ("endpoint", "https://mirror.example", "https://huggingface.co"),
        )
    ),
    Field(
        path="model.source.huggingFace.tokenSecretRef.name",
        value="other",
        instead="hub",
        within=_model(source={"huggingFace": TOKEN}),
        where="pod: volumes[name=penstock-hub-token].secret.secretName",
        rolls=True,
    ),
    Field(
        path="model.source.huggingFace.tokenSecretRef.key",
        value="other",
        within=_model(source={"huggingFace": TOKEN}),
        where="pod: volumes[name=penstock-hub-token].secret.items[0].key",
        rolls=True,
    ),
    Field(
        path="model.cache.persistentVolumeClaim.claimName",
        value="other",
        instead="c",
        within=_model(source={"huggingFace": HUB}),
        where="pod: volumes[name=penstock-model].persistentVolumeClaim.claimName",
        rolls=True,
    ),
    Field(
        path="model.cache.ephemeral.storageClassName",
        value="fast",
        within=_model(source={"huggingFace": HUB}, cache={"ephemeral": {"sizeMebibytes": 1024}}),
        where="pod: volumes[name=penstock-model].ephemeral.volumeClaimTemplate.spec.storageClassName",
        rolls=True,
    ),
    Field(
        path="model.cache.ephemeral.sizeMebibytes",
        value=2048,
        instead=1024,
        within=_model(source={"huggingFace": HUB}),
        where="pod: volumes[name=penstock-model].ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
        expected="2048Mi",
        rolls=True,
    ),
    Field(
        path="model.sizeMebibytes",
        value=50_000,
        where="engine: startupProbe.failureThreshold",
        expected=600 + 1000,
        rolls=True,
    ),
)
