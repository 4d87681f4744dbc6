"""Aggregate engine metrics into service figures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from projects.engine.replicas.readings import Histogram, Reading, Sample

Pick = Callable[[Reading], float | None]
PickHistogram = Callable[[Reading], Histogram | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure, and how many of how many engines reported what it is made of. None: nobody did."""

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
    values = _values(sample, pick)
    return Measure(sum(values) / len(values) if values else None, len(values), len(sample.engines))


def total(sample: Sample, pick: Pick) -> Measure:
    values = _values(sample, pick)
    return Measure(sum(values) if values else None, len(values), len(sample.engines))


def quantile(samples: tuple[Sample, ...], pick: PickHistogram, part: float) -> Measure:
    """Of what was observed within the samples, all engines together; None when nothing was."""
    if not samples:
        return Measure(None, 0, 0)
    latest = samples[-1]
    names = [name for name in latest.engines if _histogram(latest, name, pick) is not None]
    grown = [_growth([_histogram(sample, name, pick) for sample in samples]) for name in names]
    value = interpolated(merged(grown), part)
    return Measure(value, len(names), len(latest.engines))


def variation(samples: tuple[Sample, ...], pick: Pick) -> Measure:
    """The variance of the total over the square of its mean; None for a single sample, 0 at rest.

    A sample in which an engine is missing bears nothing out: its total is another one's.
    """
    if len(samples) < 2:
        return Measure(None, 0, len(samples[-1].engines) if samples else 0)
    totals = [total(sample, pick) for sample in samples]
    reporting = min(measure.reporting if measure.by_all else 0 for measure in totals)
    known = [measure.value for measure in totals if measure.value is not None and measure.by_all]
    engines = len(samples[-1].engines)
    if len(known) < len(totals):
        return Measure(None, reporting, engines)
    middle = sum(known) / len(known)
    spread = sum((value - middle) ** 2 for value in known) / len(known)
    return Measure(spread / middle**2 if middle else 0.0, engines, engines)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All observations in the buckets that every one has: there the counts are exact."""
    filled = [histogram for histogram in histograms if histogram.buckets]
    if not filled:
        return Histogram()
    shared = sorted(set.intersection(*(set(histogram.bounds) for histogram in filled)))
    counts = [dict(histogram.buckets) for histogram in filled]
    return Histogram(tuple((bound, sum(count[bound] for count in counts)) for bound in shared))


def interpolated(histogram: Histogram, part: float) -> float | None:
    """Evenly spread within its bucket; beyond the last finite bound it is that bound."""
    if histogram.total <= 0:
        return None
    rank = part * histogram.total
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
    """Engines that only count their tokens have the throughput that they counted since the sample before."""
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


def _values(sample: Sample, pick: Pick) -> list[float]:
    return [value for reading in sample.readings if (value := pick(reading)) is not None]


def _histogram(sample: Sample, engine: str, pick: PickHistogram) -> Histogram | None:
    return next((pick(reading) for reading in sample.readings if reading.engine == engine), None)


def _growth(seen: Iterable[Histogram | None]) -> Histogram:
    """What was observed from the first to the last. An engine that counts anew has started anew."""
    known = [histogram for histogram in seen if histogram is not None]
    steps = [_step(older, newer) for older, newer in pairwise(known)]
    return merged(steps)


def _step(older: Histogram, newer: Histogram) -> Histogram:
    before = dict(older.buckets)
    if older.bounds != newer.bounds or any(count < before[bound] for bound, count in newer.buckets):
        return newer
    return Histogram(tuple((bound, count - before[bound]) for bound, count in newer.buckets))
