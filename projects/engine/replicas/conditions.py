"""Evaluate scaling conditions and the time for which they have been met."""

from dataclasses import dataclass, replace
from operator import attrgetter

from projects.engine.replicas import config as named
from projects.engine.replicas import measures
from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.measures import Measure
from projects.engine.replicas.readings import Sample, Window

P95 = 0.95


@dataclass(frozen=True, slots=True)
class Condition:
    """A scaling condition. `holds` is None if too few engines report.

    `since` and `held` cover the streak up to the latest sample. `triggered` is True once the condition has
    held for its `duration`.
    """

    name: str
    scales_out: bool
    holds: bool | None
    value: float | None
    threshold: float
    duration: float
    reporting: int = 0
    engines: int = 0
    since: float | None = None
    held: float = 0.0
    triggered: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Measured figures of a service; values are None if unknown."""

    token_usage: Measure
    queued: Measure
    running: Measure
    throughput: Measure
    used_tokens: Measure
    max_tokens: Measure
    queue_time_p95: Measure
    ttft_p95: Measure
    ttft_p99: Measure
    inter_token_p95: Measure
    variation: Measure


def figures(window: Window, config: AutoscalerConfig) -> Figures | None:
    latest = window.latest
    if latest is None:
        return None
    samples = _recent(window.samples, latest.at, config)
    first_token = attrgetter("first_token")
    return Figures(
        token_usage=measures.mean(latest, attrgetter("token_usage")),
        queued=measures.total(latest, attrgetter("queued")),
        running=measures.total(latest, attrgetter("running")),
        throughput=measures.total(latest, attrgetter("throughput")),
        used_tokens=measures.total(latest, attrgetter("used_tokens")),
        max_tokens=measures.total(latest, attrgetter("max_tokens")),
        queue_time_p95=measures.quantile(samples, attrgetter("queue_time"), P95),
        ttft_p95=measures.quantile(samples, first_token, P95),
        ttft_p99=measures.quantile(samples, first_token, 0.99),
        inter_token_p95=measures.quantile(samples, attrgetter("inter_token"), P95),
        variation=measures.variation(samples, attrgetter("throughput")),
    )


def with_sample(window: Window, sample: Sample, config: AutoscalerConfig) -> Window:
    """Return the window with another sample: old samples are dropped and streaks are updated.

    The window starts again if the clock was set back or no sample arrived for too long.
    """
    latest = window.latest
    if latest is not None and not 0 <= sample.at - latest.at <= config.patience:
        window = Window()
    sample = measures.with_throughput(sample, window.latest)
    recent = _recent((*window.samples, sample), sample.at, config)
    moved = replace(window, samples=recent)
    since = [
        (condition.name, _streak_start(window, condition.name, sample.at))
        for condition in _evaluate(moved, config)
        if condition.holds
    ]
    return replace(moved, since=tuple(sorted(since)))


def conditions(window: Window, config: AutoscalerConfig, now: float) -> tuple[Condition, ...]:
    """Return the conditions after the latest sample; all are unknown if it is too old or in the future."""
    latest = window.latest
    fresh = latest is not None and 0 <= now - latest.at <= config.patience
    judged = _evaluate(window if fresh else Window(), config)
    return tuple(_with_streak(condition, window) for condition in judged)


def _with_streak(condition: Condition, window: Window) -> Condition:
    since, latest = window.held_since(condition.name), window.latest
    if not condition.holds or since is None or latest is None:
        return condition
    held = latest.at - since
    return replace(condition, since=since, held=held, triggered=held >= condition.duration)


def _evaluate(window: Window, config: AutoscalerConfig) -> tuple[Condition, ...]:
    figure = figures(window, config) or _unknown_figures()
    out, into = config.scale_out_policy, config.scale_in_policy
    backlog = float(out.queue_depth_per_engine * figure.queued.reporting)
    return (
        _above(named.TOKEN_USAGE_HIGH, figure.token_usage, out.token_usage_threshold, config),
        _above(named.QUEUE_BACKLOG, figure.queued, backlog, config),
        _above(named.QUEUE_LATENCY_HIGH, figure.queue_time_p95, out.queue_time_p95_threshold, config),
        _above(named.TTFT_HIGH, figure.ttft_p95, out.ttft_p95_threshold, config),
        _below(named.TOKEN_USAGE_LOW, figure.token_usage, into.token_usage_threshold, config),
        _below(named.NO_QUEUE, figure.queued, into.queue_depth_threshold, config),
        _below(named.THROUGHPUT_STABLE, figure.variation, into.throughput_variance_threshold, config),
    )


def _above(name: str, measure: Measure, threshold: float, config: AutoscalerConfig) -> Condition:
    holds = measure.value > threshold if measure.by_half and measure.value is not None else None
    return _condition(name, measure, holds, threshold, config.scale_out_policy.durations[name], out=True)


def _below(name: str, measure: Measure, threshold: float, config: AutoscalerConfig) -> Condition:
    """Return a scale-in condition. It holds only if all engines report."""
    holds: bool | None = None
    if measure.by_all and measure.value is not None:
        holds = measure.value <= threshold if name == named.NO_QUEUE else measure.value < threshold
    return _condition(name, measure, holds, threshold, config.scale_in_policy.durations[name], out=False)


def _condition(
    name: str, measure: Measure, holds: bool | None, threshold: float, duration: float, *, out: bool
) -> Condition:
    return Condition(name, out, holds, measure.value, threshold, duration, measure.reporting, measure.engines)


def _streak_start(window: Window, name: str, at: float) -> float:
    since = window.held_since(name)
    return at if since is None else since


def _recent(samples: tuple[Sample, ...], now: float, config: AutoscalerConfig) -> tuple[Sample, ...]:
    return tuple(sample for sample in samples if now - sample.at <= config.condition_window_secs)


def _unknown_figures() -> Figures:
    return Figures(*(Measure(None, 0, 0) for _ in Figures.__dataclass_fields__))
