"""Aggregate inference engine metrics into service metrics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from projects.engine.replicas.readings import Histogram, MetricReading, MetricsSample

Pick = Callable[[MetricReading], float | None]
PickHistogram = Callable[[MetricReading], Histogram | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """Value aggregated over engines, or None if unknown, and the number of engines that reported it."""

    value: float | None
    reporting: int
    engines: int

    @property
    def is_reported_by_half(self) -> bool:
        return self.engines > 0 and 2 * self.reporting >= self.engines

    @property
    def is_reported_by_all(self) -> bool:
        return self.engines > 0 and self.reporting >= self.engines


def mean(sample: MetricsSample, pick: Pick) -> Measure:
    values = _reported_values(sample, pick)
    return Measure(sum(values) / len(values) if values else None, len(values), len(sample.engines))


def sum_values(sample: MetricsSample, pick: Pick) -> Measure:
    values = _reported_values(sample, pick)
    return Measure(sum(values) if values else None, len(values), len(sample.engines))


def quantile(samples: tuple[MetricsSample, ...], pick: PickHistogram, fraction: float) -> Measure:
    """Return a quantile of all engines' observations between the first and last samples.

    The value is None if there are no observations.
    """
    if not samples:
        return Measure(None, 0, 0)
    latest = samples[-1]
    names = [name for name in latest.engines if _engine_histogram(latest, name, pick) is not None]
    increase = [
        _observations_within([_engine_histogram(sample, name, pick) for sample in samples]) for name in names
    ]
    value = interpolate_quantile(merge_histograms(increase), fraction)
    return Measure(value, len(names), len(latest.engines))


def relative_variance(samples: tuple[MetricsSample, ...], pick: Pick) -> Measure:
    """Return how much the total of all engines varies over time: its variance divided by its squared mean.

    The value is None for a single sample, or if an engine is missing from a sample, because the totals are
    then not comparable.
    """
    if len(samples) < 2:
        return Measure(None, 0, len(samples[-1].engines) if samples else 0)
    totals = [sum_values(sample, pick) for sample in samples]
    reporting = min(measure.reporting if measure.is_reported_by_all else 0 for measure in totals)
    values = [measure.value for measure in totals if measure.value is not None and measure.is_reported_by_all]
    engines = len(samples[-1].engines)
    if len(values) < len(totals):
        return Measure(None, reporting, engines)
    average = sum(values) / len(values)
    variance = sum((value - average) ** 2 for value in values) / len(values)
    return Measure(variance / average**2 if average else 0.0, engines, engines)


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """Merge histograms at their common bucket bounds. Counts at these bounds are exact."""
    non_empty = [histogram for histogram in histograms if histogram.buckets]
    if not non_empty:
        return Histogram()
    shared_bounds = sorted(set.intersection(*(set(histogram.bounds) for histogram in non_empty)))
    counts = [dict(histogram.buckets) for histogram in non_empty]
    return Histogram(tuple((bound, sum(count[bound] for count in counts)) for bound in shared_bounds))


def interpolate_quantile(histogram: Histogram, fraction: float) -> float | None:
    """Return a quantile, interpolated linearly within its bucket, or None if the histogram is empty."""
    if histogram.total <= 0:
        return None
    rank = fraction * histogram.total
    lower, below = 0.0, 0.0
    for bound, count in histogram.buckets:
        if count >= rank:
            if bound == float("inf"):
                return lower
            bucket_count = count - below
            return lower + (bound - lower) * ((rank - below) / bucket_count if bucket_count else 1.0)
        lower, below = bound, count
    return lower


def add_throughput(sample: MetricsSample, before: MetricsSample | None) -> MetricsSample:
    """Return the sample, with missing throughputs derived from token counters."""
    if before is None or sample.at <= before.at:
        return sample
    token_counts = {reading.engine: reading.generated for reading in before.readings}
    seconds = sample.at - before.at
    readings = tuple(
        _add_throughput(reading, token_counts.get(reading.engine), seconds) for reading in sample.readings
    )
    return replace(sample, readings=readings)


def _add_throughput(reading: MetricReading, before: float | None, seconds: float) -> MetricReading:
    if reading.throughput is not None or reading.generated is None or before is None:
        return reading
    increase = reading.generated - before
    return replace(reading, throughput=(increase if increase >= 0 else reading.generated) / seconds)


def _reported_values(sample: MetricsSample, pick: Pick) -> list[float]:
    return [value for reading in sample.readings if (value := pick(reading)) is not None]


def _engine_histogram(sample: MetricsSample, engine: str, pick: PickHistogram) -> Histogram | None:
    return next((pick(reading) for reading in sample.readings if reading.engine == engine), None)


def _observations_within(histograms: Iterable[Histogram | None]) -> Histogram:
    """Return the observations between the first and last histograms, even across counter resets."""
    values = [histogram for histogram in histograms if histogram is not None]
    steps = [_histogram_delta(older, newer) for older, newer in pairwise(values)]
    return merge_histograms(steps)


def _histogram_delta(older: Histogram, newer: Histogram) -> Histogram:
    before = dict(older.buckets)
    if older.bounds != newer.bounds or any(count < before[bound] for bound, count in newer.buckets):
        return newer
    return Histogram(tuple((bound, count - before[bound]) for bound, count in newer.buckets))
