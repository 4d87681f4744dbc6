"""Parse an engine's Prometheus metrics."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Line

from projects.engine.replicas.measures import merged
from projects.engine.replicas.readings import Histogram, Reading
from projects.serving.base import ServingError, Trouble

MOST_LINES = 50_000
LARGEST = 1e15  # nothing that is counted here comes near
FULL = 1.001  # a part of a whole may be rounded up
RANKS = ("tp_rank", "dp_rank", "pp_rank", "moe_ep_rank", "engine")

# What SGLang and vLLM, in its versions, call what we want to know.
USAGE = ("sglang:token_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
QUEUED = ("sglang:num_queue_reqs", "vllm:num_requests_waiting")
RUNNING = ("sglang:num_running_reqs", "vllm:num_requests_running")
THROUGHPUT = ("sglang:gen_throughput",)
GENERATED = ("vllm:generation_tokens_total",)
USED = ("sglang:num_used_tokens",)
MOST = ("sglang:max_total_num_tokens",)
QUEUE_TIME = ("sglang:queue_time_seconds", "vllm:request_queue_time_seconds")
FIRST_TOKEN = ("sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds")
INTER_TOKEN = (
    "sglang:inter_token_latency_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
)

Lines = Mapping[str, Sequence[Line]]
Key = tuple[tuple[str, str], ...]


def reading(engine: str, text: str) -> Reading:
    """Raises ServingError where it is no whole Prometheus text; a figure that cannot be true is None."""
    lines = _lines(engine, text)
    used, most = _sum(lines, USED), _sum(lines, MOST)
    if used is not None and most is not None and used > most * FULL:
        used = most = None
    return Reading(
        engine,
        token_usage=_usage(lines),
        queued=_sum(lines, QUEUED),
        running=_sum(lines, RUNNING),
        throughput=_sum(lines, THROUGHPUT),
        generated=_sum(lines, GENERATED),
        used_tokens=used,
        max_tokens=most,
        queue_time=_histogram(lines, QUEUE_TIME),
        first_token=_histogram(lines, FIRST_TOKEN),
        inter_token=_histogram(lines, INTER_TOKEN),
    )


def _lines(engine: str, text: str) -> Lines:
    """By name. A text that does not end its last line was cut off, maybe within a number."""
    if text and not text.endswith("\n"):
        raise ServingError(Trouble.UNREADABLE, engine, "its metrics are torn: the last line does not end")
    if text.count("\n") > MOST_LINES:
        raise ServingError(Trouble.UNREADABLE, engine, f"its metrics exceed {MOST_LINES} lines")
    found: dict[str, list[Line]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(text):
            for line in family.samples:
                found[line.name].append(line)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ServingError(Trouble.UNREADABLE, engine, f"its metrics cannot be read: {error}"[:200]) from None
    return found


def _sum(lines: Lines, names: Iterable[str]) -> float | None:
    """Over ranks. One rank that says what cannot be true makes the sum unknown."""
    gauges = _gauges(lines, names)
    if not gauges or any(not _may_be(value, LARGEST) for value in gauges.values()):
        return None
    return sum(gauges.values())


def _usage(lines: Lines) -> float | None:
    """A part of a whole: each rank's counts by how large its whole is."""
    parts = _gauges(lines, USAGE)
    if not parts or any(not _may_be(value, FULL) for value in parts.values()):
        return None
    wholes = _gauges(lines, MOST)
    if parts.keys() != wholes.keys() or any(not _may_be(whole, LARGEST) for whole in wholes.values()):
        wholes = dict.fromkeys(parts, 1.0)
    weight = sum(wholes.values())
    if weight <= 0:
        return None
    return min(sum(parts[key] * wholes[key] for key in parts) / weight, 1.0)


def _gauges(lines: Lines, names: Iterable[str]) -> dict[Key, float]:
    """The first name that is there, by rank. Of a figure that is broken down by priority, only the total.

    What is said twice is said by nobody.
    """
    name = next((name for name in names if lines.get(name)), "")
    found: dict[Key, float] = {}
    for line in lines.get(name, ()):
        if line.labels.get("priority"):
            continue
        key = _key(line.labels, RANKS)
        found[key] = math.nan if key in found else line.value
    return found


def _histogram(lines: Lines, names: Iterable[str]) -> Histogram | None:
    """Over all its label sets; `le` is kept. None if one of them cannot be true."""
    name = next((name for name in names if lines.get(f"{name}_bucket")), "")
    series: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    for line in lines.get(f"{name}_bucket", ()):
        labels = {label: value for label, value in line.labels.items() if label != "le"}
        series[_key(labels, labels)].append((_bound(line.labels.get("le", "")), line.value))
    parts = [Histogram(tuple(sorted(buckets))) for buckets in series.values()]
    if not parts or any(not _sound(part) for part in parts):
        return None
    return merged(parts)


def _sound(histogram: Histogram) -> bool:
    """Bounds ascend to infinity, counts never fall."""
    bounds, counts = histogram.bounds, [count for _, count in histogram.buckets]
    if bounds[-1] != math.inf or any(math.isnan(bound) for bound in bounds):
        return False
    if any(not _may_be(count, LARGEST) for count in counts):
        return False
    ascending = all(low < high for low, high in pairwise(bounds))
    return ascending and all(low <= high for low, high in pairwise(counts))


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _may_be(value: float, most: float) -> bool:
    return math.isfinite(value) and 0 <= value <= most


def _key(labels: Mapping[str, str], names: Iterable[str]) -> Key:
    return tuple(sorted((name, labels[name]) for name in names if name in labels))
