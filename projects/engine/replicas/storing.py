"""Store and restore a metrics window."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from projects.engine.replicas.conditions import Figures
from projects.engine.replicas.readings import Histogram, Reading, Sample, Window

INFINITY = "inf"  # JSON has no number for infinity
HISTOGRAMS = ("queue_time", "first_token", "inter_token")


def stored(window: Window) -> dict[str, Any]:
    return {"samples": [_sample(sample) for sample in window.samples], "since": dict(window.since)}


def restored(data: Mapping[str, Any]) -> Window:
    """Return the stored window. An empty mapping gives an empty window."""
    samples = tuple(_as_sample(sample) for sample in data.get("samples", ()))
    since = data.get("since", {})
    return Window(samples, tuple((name, since[name]) for name in sorted(since)))


def snapshot(figures: Figures | None) -> dict[str, Any]:
    """Return the figures by their public names; None if unknown."""
    if figures is None:
        return {"num_engines": 0, "reporting_engines": 0, "avg_token_usage": None, "total_queue_reqs": None}
    return {
        "num_engines": figures.queued.engines,
        "reporting_engines": figures.queued.reporting,
        "avg_token_usage": _rounded(figures.token_usage.value),
        "total_queue_reqs": _whole(figures.queued.value),
        "total_running_reqs": _whole(figures.running.value),
        "total_gen_throughput": _rounded(figures.throughput.value),
        "throughput_variance": _rounded(figures.variation.value),
        "queue_time_p95": _rounded(figures.queue_time_p95.value),
        "ttft_p95": _rounded(figures.ttft_p95.value),
        "ttft_p99": _rounded(figures.ttft_p99.value),
        "inter_token_latency_p95": _rounded(figures.inter_token_p95.value),
        "total_used_tokens": _whole(figures.used_tokens.value),
        "total_max_tokens": _whole(figures.max_tokens.value),
    }


def _sample(sample: Sample) -> dict[str, Any]:
    readings = [_reading(reading) for reading in sample.readings]
    return {"at": sample.at, "engines": list(sample.engines), "readings": readings}


def _reading(reading: Reading) -> dict[str, Any]:
    plain = {field.name: getattr(reading, field.name) for field in fields(Reading)}
    present = {name: value for name, value in plain.items() if value is not None}
    return {
        name: _buckets(value) if isinstance(value, Histogram) else value for name, value in present.items()
    }


def _buckets(histogram: Histogram) -> list[list[Any]]:
    return [[INFINITY if math.isinf(bound) else bound, count] for bound, count in histogram.buckets]


def _as_sample(data: Mapping[str, Any]) -> Sample:
    readings = tuple(_as_reading(reading) for reading in data["readings"])
    return Sample(data["at"], tuple(data["engines"]), readings)


def _as_reading(data: Mapping[str, Any]) -> Reading:
    return Reading(**{name: _as_value(name, value) for name, value in data.items()})


def _as_value(name: str, value: Any) -> Any:
    return _as_histogram(value) if name in HISTOGRAMS else value


def _as_histogram(buckets: Sequence[Sequence[Any]]) -> Histogram:
    return Histogram(tuple((math.inf if bound == INFINITY else bound, count) for bound, count in buckets))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
