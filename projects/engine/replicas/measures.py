"""Aggregate engine metrics into service figures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from projects.engine.replicas.readings import Histogram, Reading, Sample

Pick = Callable[[Reading], float | None]
PickHistogram = Callable[[Reading], Histogram | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A value, with the number of reporting engines and of all engines; None if none reported."""

    value: float | None
    reporting: int
    engines: int

    @property
    def by_half(self) -> bool:
        return self.engines > 0 and 2 * self.reporting >= self.engines

    @property
    def by_all(self) -> bool:
        return self.engines > 0 and self.reporting >= self.engines


def mean(sample: Sample, pick: Pick) -> Measure:
    values = _reported_values(sample, pick)
    return Measure(sum(values) / len(values) if values else None, len(values), len(sample.engines))


def total(sample: Sample, pick: Pick) -> Measure:
    values = _reported_values(sample, pick)
    return Measure(sum(values) if values else None, len(values), len(sample.engines))


def quantile(samples: tuple[Sample, ...], pick: PickHistogram, fraction: float) -> Measure:
    """Return a quantile of the observations in the samples, over all engines; None without observations."""
    if not samples:
        return Measure(None, 0, 0)
    latest = samples[-1]
    names = [name for name in latest.engines if _histogram(latest, name, pick) is not None]
    grown = [_growth([_histogram(sample, name, pick) for sample in samples]) for name in names]
    value = interpolated(merged(grown), fraction)
    return Measure(value, len(names), len(latest.engines))


def variation(samples: tuple[Sample, ...], pick: Pick) -> Measure:
    """Return the variance of the total divided by its squared mean; None for a single sample, 0 when idle.

    Also None if a sample lacks an engine, because totals are then not comparable.
    """
    if len(samples) < 2:
        return Measure(None, 0, len(samples[-1].engines) if samples else 0)
    totals = [total(sample, pick) for sample in samples]
    reporting = min(measure.reporting if measure.by_all else 0 for measure in totals)
    values = [measure.value for measure in totals if measure.value is not None and measure.by_all]
    engines = len(samples[-1].engines)
    if len(values) < len(totals):
        return Measure(None, reporting, engines)
    average = sum(values) / len(values)
    variance = sum((value - average) ** 2 for value in values) / len(values)
    return Measure(variance / average**2 if average else 0.0, engines, engines)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Merge histograms into the buckets common to all of them, where counts are exact."""
    filled = [histogram for histogram in histograms if histogram.buckets]
    if not filled:
        return Histogram()
    shared = sorted(set.intersection(*(set(histogram.bounds) for histogram in filled)))
    counts = [dict(histogram.buckets) for histogram in filled]
    return Histogram(tuple((bound, sum(count[bound] for count in counts)) for bound in shared))


def interpolated(histogram: Histogram, fraction: float) -> float | None:
    """Interpolate a quantile linearly within its bucket, up to the last finite bound."""
    if histogram.total <= 0:
        return None
    rank = fraction * histogram.total
    lower, below = 0.0, 0.0
    for bound, count in histogram.buckets:
        if count >= rank:
            if bound == float("inf"):
                return lower
            inside = count - below
            return lower + (bound - lower) * ((rank - below) / inside if inside else 1.0)
        lower, below = bound, count
    return lower


def with_throughput(sample: Sample, before: Sample | None) -> Sample:
    """Derive throughput from token counters for engines that do not report it."""
    if before is None or sample.at <= before.at:
        return sample
    counted = {reading.engine: reading.generated for reading in before.readings}
    seconds = sample.at - before.at
    readings = tuple(
        _with_throughput(reading, counted.get(reading.engine), seconds) for reading in sample.readings
    )
    return replace(sample, readings=readings)


def _with_throughput(reading: Reading, before: float | None, seconds: float) -> Reading:
    if reading.throughput is not None or reading.generated is None or before is None:
        return reading
    grown = reading.generated - before
    return replace(reading, throughput=(grown if grown >= 0 else reading.generated) / seconds)


def _reported_values(sample: Sample, pick: Pick) -> list[float]:
    return [value for reading in sample.readings if (value := pick(reading)) is not None]


def _histogram(sample: Sample, engine: str, pick: PickHistogram) -> Histogram | None:
    return next((pick(reading) for reading in sample.readings if reading.engine == engine), None)


def _growth(histograms: Iterable[Histogram | None]) -> Histogram:
    """Return the observations between the first and last histograms, handling counter resets."""
    values = [histogram for histogram in histograms if histogram is not None]
    steps = [_step(older, newer) for older, newer in pairwise(values)]
    return merged(steps)


def _step(older: Histogram, newer: Histogram) -> Histogram:
    before = dict(older.buckets)
    if older.bounds != newer.bounds or any(count < before[bound] for bound, count in newer.buckets):
        return newer
    return Histogram(tuple((bound, count - before[bound]) for bound, count in newer.buckets))
