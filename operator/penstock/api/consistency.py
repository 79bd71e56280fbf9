"""Rules over several parts of the spec, each as CEL for the API server and as Python for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.admission import BUILT_IN_CLASSES
from penstock.api.base import Rule, cel_text
from penstock.api.engine import DEFAULT_SLOTS, EngineType
from penstock.api.kubernetes import GPU_RESOURCE_PATTERN

if TYPE_CHECKING:
    from penstock.api.spec import LLMBackendSpec

_RANKS = "self.engine.vllm.pipelineParallelSize * self.engine.vllm.dataParallelSize"
# One pass over the map, with no list made on the way, and each amount read once: the API servers of Kubernetes 1.29
# take a filtered list for boundless, and the text of an amount for megabytes.
_GPU_COUNT = (
    "!has(self.engine.vllm) || !has(self.resources) || !has(self.resources.limits) || "
    f"self.resources.limits.all(r, !r.matches({cel_text(GPU_RESOURCE_PATTERN)}) || "
    "[quantity(string(self.resources.limits[r]))].all(count, count.isInteger() && "
    "(has(self.engine.vllm.tensorParallelSize) "
    f"? count.asInteger() in [0, self.engine.vllm.tensorParallelSize * {_RANKS}] "
    f": count.asInteger() % ({_RANKS}) == 0)))"
)


def _gpus_match(spec: LLMBackendSpec) -> bool:
    tuning = spec.engine.vllm
    if tuning is None:
        return True
    ranks = tuning.pipeline_parallel_size * tuning.data_parallel_size
    if tuning.tensor_parallel_size is None:
        return all(count % ranks == 0 for count in spec.resources.gpus().values())
    return all(count == tuning.tensor_parallel_size * ranks for count in spec.resources.gpus().values())


def _names_a_file(spec: LLMBackendSpec) -> bool:
    source = spec.model.source
    if spec.engine.type is not EngineType.LLAMA_CPP or source.hugging_face is not None:
        return True
    return not any(
        given.path.endswith("/") for given in (source.persistent_volume_claim, source.image, source.baked) if given
    )


def _names_a_gguf_file(spec: LLMBackendSpec) -> bool:
    hub = spec.model.source.hugging_face
    if spec.engine.type is not EngineType.LLAMA_CPP or hub is None:
        return True
    return hub.file is not None and hub.file.endswith(".gguf")


_SLOTS = f"(has(self.engine.maxConcurrency) ? self.engine.maxConcurrency : {DEFAULT_SLOTS})"
_LIMITS = ("initial", "minimum", "maximum")


def _fits_the_slots(spec: LLMBackendSpec) -> bool:
    if spec.engine.type is not EngineType.LLAMA_CPP:
        return True
    limits, slots = spec.admission.concurrency, spec.engine.max_concurrency or DEFAULT_SLOTS
    return all(limit is None or limit <= slots for limit in (limits.initial, limits.minimum, limits.maximum))


_BUILT_IN = "[" + ", ".join(cel_text(one.name) for one in BUILT_IN_CLASSES) + "]"


def _is_a_class(name: str) -> str:
    """Return CEL that tells whether an expression is the name of a priority class."""
    return (
        "(has(self.admission.priorityClasses) && self.admission.priorityClasses.size() > 0 "
        f"? self.admission.priorityClasses.exists(p, p.name == {name}) : {name} in {_BUILT_IN})"
    )


def _classes_exist(who: str) -> str:
    """Return CEL that tells whether all classes that a tenant's limits name exist."""
    return (
        f"{_is_a_class(f'{who}.priorityClass')} && (!has({who}.allowedPriorityClasses) || "
        f"{who}.allowedPriorityClasses.all(a, {_is_a_class('a')}))"
    )


def _default_names_classes(spec: LLMBackendSpec) -> bool:
    default = spec.tenants.default if spec.tenants else None
    return default is None or default.named_classes <= {one.name for one in spec.admission.classes}


def _tenants_name_classes(spec: LLMBackendSpec) -> bool:
    known = {one.name for one in spec.admission.classes}
    return spec.tenants is None or all(one.named_classes <= known for one in spec.tenants.classes)


_CLASS_MESSAGE = (
    "`priorityClass` and `allowedPriorityClasses` name entries of `admission.priorityClasses`; "
    "without that list there are interactive, normal and batch"
)

RULES: Final = (
    Rule(
        cel=_GPU_COUNT,
        message=(
            "the GPUs in `resources.limits` must equal tensorParallelSize × pipelineParallelSize × "
            "dataParallelSize; leave tensorParallelSize out to let Penstock choose it"
        ),
        holds=_gpus_match,
    ),
    Rule(
        cel="self.engine.type != 'LlamaCpp' || ("
        + " && ".join(
            f"(!has(self.model.source.{name}) || !self.model.source.{name}.path.endsWith('/'))"
            for name in ("persistentVolumeClaim", "image", "baked")
        )
        + ")",
        message="llama.cpp needs the path of a GGUF file, such as `/models/model.gguf`",
        holds=_names_a_file,
        field="model.source",
    ),
    Rule(
        cel=(
            "self.engine.type != 'LlamaCpp' || !has(self.model.source.huggingFace) || "
            "(has(self.model.source.huggingFace.file) && self.model.source.huggingFace.file.endsWith('.gguf'))"
        ),
        message="llama.cpp needs `file`, the GGUF file in the repository, such as model-q8_0.gguf",
        holds=_names_a_gguf_file,
        field="model.source.huggingFace",
    ),
    Rule(
        cel="self.engine.type != 'LlamaCpp' || !has(self.admission) || !has(self.admission.concurrency) || ("
        + " && ".join(
            f"(!has(self.admission.concurrency.{name}) || self.admission.concurrency.{name} <= {_SLOTS})"
            for name in _LIMITS
        )
        + ")",
        message=(
            "llama.cpp works on `engine.maxConcurrency` requests at a time "
            f"({DEFAULT_SLOTS} unless set); raise that, or lower these"
        ),
        holds=_fits_the_slots,
        field="admission.concurrency",
    ),
    Rule(
        cel=f"!has(self.tenants) || !has(self.tenants.default) || ({_classes_exist('self.tenants.default')})",
        message=_CLASS_MESSAGE,
        holds=_default_names_classes,
        field="tenants.default",
    ),
    Rule(
        cel=(f"!has(self.tenants) || !has(self.tenants.classes) || self.tenants.classes.all(t, {_classes_exist('t')})"),
        message=_CLASS_MESSAGE,
        holds=_tenants_name_classes,
        field="tenants.classes",
    ),
)
