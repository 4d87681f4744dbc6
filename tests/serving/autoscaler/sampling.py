"""Sample a service as the autoscaler does."""

from dataclasses import dataclass, field

from projects.engine.replicas.conditions import Condition, add_sample, conditions
from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.decide import Fleet, ScalingAction, ScalingDecision, ScalingTimes, decide
from projects.engine.replicas.readings import Histogram, MetricReading, MetricsSample, SampleWindow

INFINITY = float("inf")


@dataclass
class Watch:
    """Samples of a service. `take_sample` takes one sample every ten seconds by default."""

    engines: int = 4
    initial: int = 1
    config: AutoscalerConfig = field(default_factory=AutoscalerConfig)
    now: float = 1000.0
    window: SampleWindow = field(default_factory=SampleWindow)
    waits: tuple[tuple[float, float], ...] = ()  # cumulative times per engine

    def take_sample(
        self, usage: float | None = 0.5, queue: float | None = 20.0, *, times: int = 1, every: float = 10.0,
        silent: int = 0, throughput: float | None = 100.0, waits: Histogram | None = None,
        first_token: Histogram | None = None,
    ) -> "Watch":  # fmt: skip
        """Take a sample in which all engines report the same readings.

        The last `silent` engines report nothing.
        """
        for _ in range(times):
            self.now += every
            names = tuple(f"engine_{number}" for number in range(self.engines))
            answering = names[: self.engines - silent]
            share = None if queue is None else queue / max(len(answering), 1)
            readings = tuple(
                MetricReading(
                    name, token_usage=usage, queued=share, throughput=throughput, queue_time=waits,
                    first_token=first_token,
                )
                for name in answering
            )  # fmt: skip
            self.window = add_sample(self.window, MetricsSample(self.now, names, readings), self.config)
        return self

    def decide(
        self,
        *,
        pending: bool = False,
        last: ScalingAction = ScalingAction.NONE,
        scaled_at: float | None = None,
    ) -> ScalingDecision:
        fleet = Fleet(self.engines, self.initial)
        return decide(self.window, fleet, self.config, ScalingTimes(self.now, scaled_at, last), pending)

    def condition(self, name: str) -> Condition:
        judged = conditions(self.window, self.config, self.now)
        return next(condition for condition in judged if condition.name == name)


def cumulative_observations(*seconds: float) -> Histogram:
    """Return cumulative counts for histogram buckets up to 1, 5, 10, 20 and more seconds."""
    bounds = (1.0, 5.0, 10.0, 20.0, INFINITY)
    return Histogram(tuple((bound, float(sum(took <= bound for took in seconds))) for bound in bounds))
