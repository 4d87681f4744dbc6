"""Decide whether to scale a service out or in."""

from dataclasses import dataclass
from enum import StrEnum

from projects.engine.replicas.conditions import Condition, ServiceMetrics, compute_metrics, conditions
from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.readings import SampleWindow

CRITICAL_USAGE = 0.9
BUSY_USAGE, USAGE_STEP = 0.7, 0.1  # above a token usage of 0.7, each further 0.1 adds one engine
QUEUE_PER_ENGINE, QUEUE_STEP = 5, 20


class ScalingAction(StrEnum):
    NONE = "none"
    OUT = "scale_out"
    IN = "scale_in"


class HoldReason(StrEnum):
    """Reasons why the autoscaler does not scale even though conditions are met."""

    DISABLED = "disabled"
    PENDING = "pending"
    COOLDOWN = "cooldown"
    MAX_ENGINES = "max_engines"
    MIN_ENGINES = "min_engines"
    INITIAL_ENGINES = "initial_engines"
    PROJECTED_USAGE = "projected_usage"
    BLIND = "blind"  # too few engines report metrics


@dataclass(frozen=True, slots=True)
class Fleet:
    """Number of serving inference engines. The `initial` engines among them are never removed."""

    engines: int
    initial: int = 0


@dataclass(frozen=True, slots=True)
class ScalingTimes:
    """Unix times that a scaling decision depends on.

    The kind of the last action determines which cooldown applies.
    """

    now: float
    last_scaled_at: float | None = None
    last_action: ScalingAction = ScalingAction.NONE


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Scaling decision: the `conditions` that led to it, and the `target` number of inference engines."""

    action: ScalingAction
    delta: int
    target: int
    reason: str
    conditions: tuple[str, ...] = ()
    held: HoldReason | None = None


def decide(
    window: SampleWindow, fleet: Fleet, config: AutoscalerConfig, clock: ScalingTimes, pending: bool
) -> ScalingDecision:
    """Return the scaling decision. `pending` is True while a scale request is in progress."""
    evaluated, metrics = conditions(window, config, clock.now), compute_metrics(window, config)
    return decide_from_conditions(evaluated, metrics, fleet, config, clock, pending)


def decide_from_conditions(
    evaluated: tuple[Condition, ...],
    metrics: ServiceMetrics | None,
    fleet: Fleet,
    config: AutoscalerConfig,
    clock: ScalingTimes,
    pending: bool,
) -> ScalingDecision:
    """Return the scaling decision for conditions that have already been evaluated."""
    intended = (
        _decide_for_minimum(fleet, config)
        or _decide_for_maximum(evaluated, fleet, config)
        or _decide_scale_out(evaluated, metrics, fleet, config)
        or _decide_scale_in(evaluated, metrics, fleet, config)
    )
    if not config.enabled:
        return _hold_decision(fleet, "the autoscaler is disabled", HoldReason.DISABLED, intended)
    if pending:
        return _hold_decision(fleet, "another scale request is in progress", HoldReason.PENDING, intended)
    if (left := remaining_cooldown(config, clock)) > 0:
        return _hold_decision(fleet, f"in cooldown for another {left:.0f} s", HoldReason.COOLDOWN, intended)
    return intended or _decide_no_action(evaluated, fleet)


def remaining_cooldown(config: AutoscalerConfig, clock: ScalingTimes) -> float:
    """Return the seconds left in the cooldown, which ends early if the clock was set back."""
    cooldowns = {
        ScalingAction.OUT: config.scale_out_cooldown_secs,
        ScalingAction.IN: config.scale_in_cooldown_secs,
    }
    if clock.last_scaled_at is None:
        return 0.0
    elapsed = clock.now - clock.last_scaled_at
    return max(cooldowns.get(clock.last_action, 0.0) - elapsed, 0.0) if elapsed >= 0 else 0.0


def engines_to_add(current_metrics: ServiceMetrics | None, engines: int, config: AutoscalerConfig) -> int:
    """Return the number of engines to add for the current load, from 1 to the policy's max_delta."""
    usage = (current_metrics.token_usage.value if current_metrics else None) or 0.0
    queued = int((current_metrics.queued.value if current_metrics else None) or 0)
    by_usage = int((usage - BUSY_USAGE) / USAGE_STEP) if usage > CRITICAL_USAGE else 0
    by_queue = max(0, (queued - engines * QUEUE_PER_ENGINE) // QUEUE_STEP)
    return min(max(by_usage, by_queue, 1), config.scale_out_policy.max_delta)


def _decide_for_minimum(fleet: Fleet, config: AutoscalerConfig) -> ScalingDecision | None:
    missing = config.min_engines - fleet.engines
    if missing <= 0:
        return None
    delta = min(missing, config.scale_out_policy.max_delta)
    reason = f"{fleet.engines} engines, fewer than min_engines {config.min_engines}"
    return ScalingDecision(ScalingAction.OUT, delta, fleet.engines + delta, reason, ("below_min_engines",))


def _decide_for_maximum(
    evaluated: tuple[Condition, ...], fleet: Fleet, config: AutoscalerConfig
) -> ScalingDecision | None:
    if fleet.engines <= config.max_engines:
        return None
    minimum = max(config.max_engines, fleet.initial)
    delta = min(fleet.engines - minimum, config.scale_in_policy.max_delta)
    if delta <= 0:
        return _hold_decision(
            fleet, f"the {fleet.initial} initial engines are never removed", HoldReason.INITIAL_ENGINES, None
        )
    if not _all_engines_report(evaluated):
        return _hold_decision(
            fleet, "not all engines report metrics, so none is removed", HoldReason.BLIND, None
        )
    reason = f"{fleet.engines} engines, more than max_engines {config.max_engines}"
    return ScalingDecision(ScalingAction.IN, delta, fleet.engines - delta, reason, ("above_max_engines",))


def _decide_scale_out(
    evaluated: tuple[Condition, ...], metrics: ServiceMetrics | None, fleet: Fleet, config: AutoscalerConfig
) -> ScalingDecision | None:
    met_conditions = tuple(
        condition.name for condition in evaluated if condition.scales_out and condition.triggered
    )
    if not met_conditions:
        return None
    room = config.max_engines - fleet.engines
    reason = f"Conditions met: {', '.join(met_conditions)}"
    if room <= 0:
        reason_text = f"{reason}; already at max_engines {config.max_engines}"
        return ScalingDecision(
            ScalingAction.NONE, 0, fleet.engines, reason_text, met_conditions, HoldReason.MAX_ENGINES
        )
    delta = min(engines_to_add(metrics, fleet.engines, config), room)
    return ScalingDecision(ScalingAction.OUT, delta, fleet.engines + delta, reason, met_conditions)


def _decide_scale_in(
    evaluated: tuple[Condition, ...], metrics: ServiceMetrics | None, fleet: Fleet, config: AutoscalerConfig
) -> ScalingDecision | None:
    scale_in_conditions = [condition for condition in evaluated if not condition.scales_out]
    if not all(condition.triggered for condition in scale_in_conditions):
        return None
    met_conditions = tuple(condition.name for condition in scale_in_conditions)
    reason = f"Conditions met: {', '.join(met_conditions)}"
    minimum = max(config.min_engines, fleet.initial)
    if (room := fleet.engines - minimum) <= 0:
        held = HoldReason.INITIAL_ENGINES if fleet.initial > config.min_engines else HoldReason.MIN_ENGINES
        return ScalingDecision(
            ScalingAction.NONE,
            0,
            fleet.engines,
            f"{reason}; already at the minimum of {minimum} engines",
            met_conditions,
            held,
        )
    usage = (metrics.token_usage.value if metrics else None) or 0.0
    for delta in range(min(room, config.scale_in_policy.max_delta), 0, -1):
        engines_left = fleet.engines - delta
        if (
            engines_left > 0
            and usage * fleet.engines / engines_left < config.scale_in_policy.projected_usage_max
        ):
            return ScalingDecision(ScalingAction.IN, delta, engines_left, reason, met_conditions)
    limit = f"{config.scale_in_policy.projected_usage_max:.0%}"
    reason_text = f"{reason}; token usage of the remaining engines would reach {limit}"
    return ScalingDecision(
        ScalingAction.NONE, 0, fleet.engines, reason_text, met_conditions, HoldReason.PROJECTED_USAGE
    )


def _decide_no_action(evaluated: tuple[Condition, ...], fleet: Fleet) -> ScalingDecision:
    if not _all_engines_report(evaluated):
        return _hold_decision(fleet, "not all engines report metrics", HoldReason.BLIND, None)
    return ScalingDecision(ScalingAction.NONE, 0, fleet.engines, "no conditions met")


def _hold_decision(
    fleet: Fleet, reason: str, held: HoldReason, intended: ScalingDecision | None
) -> ScalingDecision:
    met_conditions = intended.conditions if intended else ()
    return ScalingDecision(ScalingAction.NONE, 0, fleet.engines, reason, met_conditions, held)


def _all_engines_report(evaluated: tuple[Condition, ...]) -> bool:
    """Return whether all inference engines report the two metrics that every kind supports."""
    required = [condition for condition in evaluated if condition.name in {"token_usage_low", "no_queue"}]
    return all(condition.is_met is not None for condition in required)
