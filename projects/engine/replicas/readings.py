"""Metric samples of a service within a time window."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations since the inference engine started, as (upper bound, count) buckets.

    Counts are cumulative, and the last bound is infinite.
    """

    buckets: tuple[tuple[float, float], ...] = ()

    @property
    def total(self) -> float:
        return self.buckets[-1][1] if self.buckets else 0.0

    @property
    def bounds(self) -> tuple[float, ...]:
        return tuple(bound for bound, _ in self.buckets)


@dataclass(frozen=True, slots=True)
class MetricReading:
    """Metrics of one inference engine at one point in time. Missing or implausible values are None."""

    engine: str
    token_usage: float | None = None  # fraction from 0 to 1
    queued: float | None = None
    running: float | None = None
    throughput: float | None = None  # tokens per second
    # tokens generated since the engine started, for engines that do not report throughput
    generated: float | None = None
    used_tokens: float | None = None
    max_tokens: float | None = None
    queue_time: Histogram | None = None
    first_token: Histogram | None = None
    inter_token: Histogram | None = None


@dataclass(frozen=True, slots=True)
class MetricsSample:
    """Readings of a service at one point in time. Inference engines without a reading did not respond."""

    at: float  # time of the sample in seconds
    engines: tuple[str, ...]
    readings: tuple[MetricReading, ...]


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """Samples within the time window, oldest first, and the time since which each condition has been met."""

    samples: tuple[MetricsSample, ...] = ()
    since: tuple[tuple[str, float], ...] = field(default=())

    @property
    def latest(self) -> MetricsSample | None:
        return self.samples[-1] if self.samples else None

    def condition_start(self, condition: str) -> float | None:
        return next((at for name, at in self.since if name == condition), None)
