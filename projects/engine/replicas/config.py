"""Autoscaler settings and their defaults, with durations in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

TOKEN_USAGE_HIGH = "token_usage_high"  # noqa: S105 (a condition, not a secret)
QUEUE_BACKLOG = "queue_backlog"
QUEUE_LATENCY_HIGH = "queue_latency_high"
TTFT_HIGH = "ttft_high"
TOKEN_USAGE_LOW = "token_usage_low"  # noqa: S105 (a condition, not a secret)
NO_QUEUE = "no_queue"
THROUGHPUT_STABLE = "throughput_stable"

OUT_CONDITIONS = (TOKEN_USAGE_HIGH, QUEUE_BACKLOG, QUEUE_LATENCY_HIGH, TTFT_HIGH)
IN_CONDITIONS = (TOKEN_USAGE_LOW, NO_QUEUE, THROUGHPUT_STABLE)
OUT_DURATIONS = MappingProxyType(
    {TOKEN_USAGE_HIGH: 30.0, QUEUE_BACKLOG: 20.0, QUEUE_LATENCY_HIGH: 15.0, TTFT_HIGH: 15.0}
)
IN_DURATIONS = MappingProxyType({TOKEN_USAGE_LOW: 120.0, NO_QUEUE: 120.0, THROUGHPUT_STABLE: 60.0})
MAX_MISSED_SAMPLES = 3  # consecutive missing samples after which the streaks of all conditions are reset


@dataclass(frozen=True, slots=True)
class ScaleOutPolicy:
    """Scale-out policy.

    A condition triggers a scale-out once it has been met for its number of seconds in `durations`.
    """

    token_usage_threshold: float = 0.85
    queue_depth_per_engine: int = 10
    queue_time_p95_threshold: float = 5.0
    ttft_p95_threshold: float = 10.0
    max_delta: int = 4
    durations: Mapping[str, float] = field(default_factory=lambda: OUT_DURATIONS)


@dataclass(frozen=True, slots=True)
class ScaleInPolicy:
    """Scale-in policy. A scale-in requires all conditions.

    The variance threshold is relative to the squared mean.
    """

    token_usage_threshold: float = 0.3
    queue_depth_threshold: int = 0
    throughput_variance_threshold: float = 0.1
    max_delta: int = 1
    projected_usage_max: float = 0.5
    durations: Mapping[str, float] = field(default_factory=lambda: IN_DURATIONS)


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    enabled: bool = True
    min_engines: int = 1
    max_engines: int = 32
    scale_out_cooldown_secs: float = 60.0
    scale_in_cooldown_secs: float = 300.0
    metrics_interval_secs: float = 10.0
    evaluation_interval_secs: float = 30.0
    condition_window_secs: float = 60.0
    rollout_service_url: str = "http://localhost:8000/rollout"
    scale_out_policy: ScaleOutPolicy = field(default_factory=ScaleOutPolicy)
    scale_in_policy: ScaleInPolicy = field(default_factory=ScaleInPolicy)

    @property
    def max_sample_age(self) -> float:
        """Maximum number of seconds between two samples. After a longer gap, the streaks are reset."""
        return MAX_MISSED_SAMPLES * self.metrics_interval_secs
