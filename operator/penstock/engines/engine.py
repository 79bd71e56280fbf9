"""The way in: `for_type()` gives the engine of a backend.

The operator asks the engine for command line, environment and pod shape; the limiter reads `.facts` for the paths it
lets through, the health path and the metric names.
"""

from __future__ import annotations

from penstock.api.engine import EngineType
from penstock.engines.base import Engine
from penstock.engines.facts import (
    Aggregation,
    EngineFacts,
    MetricName,
    MetricNames,
    RequestClass,
    WritableDirectory,
)
from penstock.engines.llamacpp import LlamaCpp
from penstock.engines.version import EngineVersion
from penstock.engines.vllm import VLLM

__all__ = [
    "Aggregation",
    "Engine",
    "EngineFacts",
    "EngineVersion",
    "MetricName",
    "MetricNames",
    "RequestClass",
    "WritableDirectory",
    "for_type",
]

ENGINES: dict[EngineType, Engine] = {engine.facts.type: engine for engine in (VLLM(), LlamaCpp())}


def for_type(engine_type: EngineType) -> Engine:
    """Return the engine of a type."""
    return ENGINES[engine_type]
