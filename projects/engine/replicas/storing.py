"""Convert a metrics window to and from JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from projects.engine.replicas.conditions import ServiceMetrics
from projects.engine.replicas.readings import Histogram, MetricReading, MetricsSample, SampleWindow

INFINITY = "inf"  # JSON cannot represent infinity
HISTOGRAMS = ("queue_time", "first_token", "inter_token")


def to_json(window: SampleWindow) -> dict[str, Any]:
    return {"samples": [_sample_to_json(sample) for sample in window.samples], "since": dict(window.since)}


def window_from_json(data: Mapping[str, Any]) -> SampleWindow:
    """Convert JSON data to a window. Empty data becomes an empty window."""
    samples = tuple(_parse_sample(sample) for sample in data.get("samples", ()))
    since = data.get("since", {})
    return SampleWindow(samples, tuple((name, since[name]) for name in sorted(since)))


def metrics_to_json(figures: ServiceMetrics | None) -> dict[str, Any]:
    """Return the metrics by their public names. Unknown values are None."""
    if figures is None:
        return {"num_engines": 0, "reporting_engines": 0, "avg_token_usage": None, "total_queue_reqs": None}
    return {
        "num_engines": figures.queued.engines,
        "reporting_engines": figures.queued.reporting,
        "avg_token_usage": _round_value(figures.token_usage.value),
        "total_queue_reqs": _round_to_int(figures.queued.value),
        "total_running_reqs": _round_to_int(figures.running.value),
        "total_gen_throughput": _round_value(figures.throughput.value),
        "throughput_variance": _round_value(figures.relative_variance.value),
        "queue_time_p95": _round_value(figures.queue_time_p95.value),
        "ttft_p95": _round_value(figures.ttft_p95.value),
        "ttft_p99": _round_value(figures.ttft_p99.value),
        "inter_token_latency_p95": _round_value(figures.inter_token_p95.value),
        "total_used_tokens": _round_to_int(figures.used_tokens.value),
        "total_max_tokens": _round_to_int(figures.max_tokens.value),
    }


def _sample_to_json(sample: MetricsSample) -> dict[str, Any]:
    readings = [_reading_to_json(reading) for reading in sample.readings]
    return {"at": sample.at, "engines": list(sample.engines), "readings": readings}


def _reading_to_json(reading: MetricReading) -> dict[str, Any]:
    raw_values = {field.name: getattr(reading, field.name) for field in fields(MetricReading)}
    known_values = {name: value for name, value in raw_values.items() if value is not None}
    return {
        name: _buckets_to_json(value) if isinstance(value, Histogram) else value
        for name, value in known_values.items()
    }


def _buckets_to_json(histogram: Histogram) -> list[list[Any]]:
    return [[INFINITY if math.isinf(bound) else bound, count] for bound, count in histogram.buckets]


def _parse_sample(data: Mapping[str, Any]) -> MetricsSample:
    readings = tuple(_parse_reading(reading) for reading in data["readings"])
    return MetricsSample(data["at"], tuple(data["engines"]), readings)


def _parse_reading(data: Mapping[str, Any]) -> MetricReading:
    return MetricReading(**{name: _parse_value(name, value) for name, value in data.items()})


def _parse_value(name: str, value: Any) -> Any:
    return _parse_histogram(value) if name in HISTOGRAMS else value


def _parse_histogram(buckets: Sequence[Sequence[Any]]) -> Histogram:
    return Histogram(tuple((math.inf if bound == INFINITY else bound, count) for bound, count in buckets))


def _round_value(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _round_to_int(value: float | None) -> int | None:
    return None if value is None else round(value)
