"""The engine's counters under the names of its /metrics endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Metric:
    name: str
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Counter(Metric):
    value: int | float = 0


@dataclass
class Gauge(Metric):
    value: float = 0.0


_GAUGES = {"num_running": "num_requests_running", "num_waiting": "num_requests_waiting",
           "num_swapped": "num_requests_swapped", "num_compressing": "num_requests_compressing",
           "num_blocks": "num_blocks", "num_free_blocks": "num_free_blocks", "num_cached_blocks": "num_cached_blocks",
           "num_query_slots": "num_query_slots", "num_used_query_slots": "num_used_query_slots"}  # fmt: skip
_COUNTERS = {"prompt_tokens": "prompt_tokens", "generation_tokens": "generation_tokens",
             "recomputed_tokens": "recomputed_tokens", "preemptions": "num_preemptions",
             "compressions": "num_compressions", "steps": "num_steps", "evicted_tokens": "evicted_tokens",
             "prefix_cache_queries": "prefix_cache_queries", "prefix_cache_hits": "prefix_cache_hits",
             "swapped_out_blocks": "swapped_out_blocks", "swapped_in_blocks": "swapped_in_blocks",
             "compression_seconds": "compression_seconds", "step_seconds": "step_seconds"}  # fmt: skip


def metrics_of(stats: Mapping[str, Any], model_name: str) -> list[Metric]:
    labels = {"model_name": model_name, "engine": "0"}
    metrics: list[Metric] = [Gauge(f"zipage:{name}", dict(labels), float(stats[key])) for key, name in _GAUGES.items()]
    used = stats["num_blocks"] - stats["num_free_blocks"]
    metrics.append(Gauge("zipage:kv_cache_usage_perc", dict(labels), used / max(stats["num_blocks"], 1)))
    metrics += [Counter(f"zipage:{name}", dict(labels), stats[key]) for key, name in _COUNTERS.items()]
    return metrics
