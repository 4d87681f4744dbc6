"""Parse an inference engine's Prometheus metrics."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Line

from projects.engine.replicas.measures import merge_histograms
from projects.engine.replicas.readings import Histogram, MetricReading
from projects.serving.base import ErrorKind, ServingError

MAX_LINES = 50_000
MAX_VALUE = 1e15  # far above any plausible counter value
MAX_FRACTION = 1.001  # fractions may be slightly above 1 due to rounding
RANKS = ("tp_rank", "dp_rank", "pp_rank", "moe_ep_rank", "engine")

# Metric names used by SGLang and by various versions of vLLM.
USAGE = ("sglang:token_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
QUEUED = ("sglang:num_queue_reqs", "vllm:num_requests_waiting")
RUNNING = ("sglang:num_running_reqs", "vllm:num_requests_running")
THROUGHPUT = ("sglang:gen_throughput",)
GENERATED = ("vllm:generation_tokens_total",)
USED = ("sglang:num_used_tokens",)
CAPACITY = ("sglang:max_total_num_tokens",)
QUEUE_TIME = ("sglang:queue_time_seconds", "vllm:request_queue_time_seconds")
FIRST_TOKEN = ("sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds")
INTER_TOKEN = (
    "sglang:inter_token_latency_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
)

Lines = Mapping[str, Sequence[Line]]
Key = tuple[tuple[str, str], ...]


def parse_metrics(engine: str, text: str) -> MetricReading:
    """Return the metrics in `text`, with None for implausible values.

    Raises ServingError if the text is truncated or invalid.
    """
    lines = _parse_lines(engine, text)
    used, capacity = _sum_over_ranks(lines, USED), _sum_over_ranks(lines, CAPACITY)
    if used is not None and capacity is not None and used > capacity * MAX_FRACTION:
        used = capacity = None
    return MetricReading(
        engine,
        token_usage=_token_usage(lines),
        queued=_sum_over_ranks(lines, QUEUED),
        running=_sum_over_ranks(lines, RUNNING),
        throughput=_sum_over_ranks(lines, THROUGHPUT),
        generated=_sum_over_ranks(lines, GENERATED),
        used_tokens=used,
        max_tokens=capacity,
        queue_time=_parse_histogram(lines, QUEUE_TIME),
        first_token=_parse_histogram(lines, FIRST_TOKEN),
        inter_token=_parse_histogram(lines, INTER_TOKEN),
    )


def _parse_lines(engine: str, text: str) -> Lines:
    """Return the samples, keyed by metric name. Raises ServingError for text without a final newline."""
    if text and not text.endswith("\n"):
        raise ServingError(
            ErrorKind.UNREADABLE, engine, "the metrics are truncated: the last line is incomplete"
        )
    if text.count("\n") > MAX_LINES:
        raise ServingError(ErrorKind.UNREADABLE, engine, f"the metrics exceed {MAX_LINES} lines")
    by_name: dict[str, list[Line]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(text):
            for line in family.samples:
                by_name[line.name].append(line)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ServingError(ErrorKind.UNREADABLE, engine, f"the metrics are invalid: {error}"[:200]) from None
    return by_name


def _sum_over_ranks(lines: Lines, names: Iterable[str]) -> float | None:
    """Return a metric's sum over all ranks, or None if a rank reports an implausible value."""
    gauges = _gauges_by_rank(lines, names)
    if not gauges or any(not _is_plausible(value, MAX_VALUE) for value in gauges.values()):
        return None
    return sum(gauges.values())


def _token_usage(lines: Lines) -> float | None:
    """Return the token usage from 0 to 1, weighted by the ranks' capacities if known.

    Return None if it is missing or implausible.
    """
    fractions = _gauges_by_rank(lines, USAGE)
    if not fractions or any(not _is_plausible(value, MAX_FRACTION) for value in fractions.values()):
        return None
    capacities = _gauges_by_rank(lines, CAPACITY)
    if fractions.keys() != capacities.keys() or any(
        not _is_plausible(capacity, MAX_VALUE) for capacity in capacities.values()
    ):
        capacities = dict.fromkeys(fractions, 1.0)
    weight = sum(capacities.values())
    if weight <= 0:
        return None
    return min(sum(fractions[key] * capacities[key] for key in fractions) / weight, 1.0)


def _gauges_by_rank(lines: Lines, names: Iterable[str]) -> dict[Key, float]:
    """Return the values of the first metric that is present, keyed by rank.

    If a rank has several values, its value is NaN.
    """
    name = next((name for name in names if lines.get(name)), "")
    values_by_rank: dict[Key, float] = {}
    for line in lines.get(name, ()):
        if line.labels.get("priority"):
            continue
        key = _label_key(line.labels, RANKS)
        values_by_rank[key] = math.nan if key in values_by_rank else line.value
    return values_by_rank


def _parse_histogram(lines: Lines, names: Iterable[str]) -> Histogram | None:
    """Merge the histograms of all label sets. Return None if there are none or if one is implausible."""
    name = next((name for name in names if lines.get(f"{name}_bucket")), "")
    series: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    for line in lines.get(f"{name}_bucket", ()):
        labels = {label: value for label, value in line.labels.items() if label != "le"}
        series[_label_key(labels, labels)].append((_parse_bound(line.labels.get("le", "")), line.value))
    fractions = [Histogram(tuple(sorted(buckets))) for buckets in series.values()]
    if not fractions or any(not _is_valid(part) for part in fractions):
        return None
    return merge_histograms(fractions)


def _is_valid(histogram: Histogram) -> bool:
    """Return whether the histogram's bounds ascend to infinity and its counts never decrease."""
    bounds, counts = histogram.bounds, [count for _, count in histogram.buckets]
    if bounds[-1] != math.inf or any(math.isnan(bound) for bound in bounds):
        return False
    if any(not _is_plausible(count, MAX_VALUE) for count in counts):
        return False
    is_ascending = all(low < high for low, high in pairwise(bounds))
    return is_ascending and all(low <= high for low, high in pairwise(counts))


def _parse_bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_plausible(value: float, capacity: float) -> bool:
    return math.isfinite(value) and 0 <= value <= capacity


def _label_key(labels: Mapping[str, str], names: Iterable[str]) -> Key:
    return tuple(sorted((name, labels[name]) for name in names if name in labels))
