"""Compute an elastic pool's desired node count from its load."""

from dataclasses import dataclass
from enum import StrEnum

LOW_UTILIZATION = (3, 10)  # a pool is underutilized below this fraction of its capacity (30%)
RESOURCE_LABELS = {"cpu": "CPU", "memory_mib": "memory", "pods": "number of pods"}


@dataclass(frozen=True, slots=True)
class PoolPressure:
    """Load of a pool.

    `queued`, `running` and `capacity` are in thousandths of a slot, such as a GPU. `queued` is work that
    needs more nodes or waits for booting ones, and `binding` is the scarcest resource of this work. `nodes`
    is the number of ready nodes, and `booting` the number of nodes that are requested but not ready.
    `gang_nodes` is the number of empty nodes that queued gangs need.
    """

    queued: int
    running: int
    capacity: int
    nodes: int
    gang_nodes: int = 0
    booting: int = 0
    binding: str = "gpu"


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """Autoscaler settings of a pool.

    `slots_per_node` is in thousandths of a slot, and durations are in seconds. `ready_threshold` is 0 once
    the pool is operational. If the minimum is 0, the threshold is ignored until there is work.
    """

    min: int
    max: int
    slots_per_node: int
    ready_threshold: int = 0
    cooldown: float = 30
    idle_timeout: float = 60


@dataclass(frozen=True, slots=True)
class ScalingTimes:
    """Current time, and the times when the pool last scaled, became idle and will expire.

    Times are in seconds. A time is None if it does not apply.
    """

    now: float
    last_scaled_at: float | None = None
    idle_since: float | None = None
    expires_at: float | None = None


class ScalingRule(StrEnum):
    EXPIRED = "expired"
    QUEUED = "queued"
    IDLE = "idle"
    LOW_UTILIZATION = "low_utilization"
    STEADY = "steady"


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    desired: int
    rule: ScalingRule
    reason: str
    is_delayed: bool = False  # True if the cooldown delays scaling down


def decide_node_count(
    pressure: PoolPressure, current_desired: int, config: AutoscalerConfig, clock: ScalingTimes
) -> ScaleDecision:
    """Return the desired node count by the first rule that applies. The cooldown delays only scaling down."""
    if clock.expires_at is not None and clock.now >= clock.expires_at:
        return ScaleDecision(0, ScalingRule.EXPIRED, "the pool has expired")
    decision = (
        _decide_for_queued_work(pressure, current_desired, config)
        or _decide_when_idle(pressure, current_desired, config, clock)
        or _decide_at_low_utilization(pressure, config)
        or ScaleDecision(current_desired, ScalingRule.STEADY, "demand is met")
    )
    bounded = _apply_limits(config, decision)
    if bounded.desired < current_desired and _is_cooling_down(config, clock):
        return ScaleDecision(
            current_desired, bounded.rule, f"{bounded.reason}; waiting for the cooldown", is_delayed=True
        )
    return bounded


def _decide_for_queued_work(
    pressure: PoolPressure, current: int, config: AutoscalerConfig
) -> ScaleDecision | None:
    if pressure.queued <= 0:
        return None
    by_slots = _nodes_for_slots(pressure.queued, config.slots_per_node)
    additional = max(by_slots, pressure.gang_nodes)
    desired = max(pressure.nodes + additional, current, config.ready_threshold)
    resource = (
        "" if pressure.binding == "gpu" else f" by {RESOURCE_LABELS.get(pressure.binding, pressure.binding)}"
    )
    queued = f"{_format_slots(pressure.queued)} queued{resource}"
    reason = f"{queued}: {_format_nodes(additional)} in addition to {pressure.nodes} ready"
    return ScaleDecision(desired, ScalingRule.QUEUED, reason)


def _decide_when_idle(
    pressure: PoolPressure, current: int, config: AutoscalerConfig, clock: ScalingTimes
) -> ScaleDecision | None:
    if pressure.running > 0:
        return None
    if pressure.nodes <= 0 and pressure.booting <= 0:
        return ScaleDecision(config.min, ScalingRule.IDLE, "no nodes and no queued work")
    idle = 0.0 if clock.idle_since is None else clock.now - clock.idle_since
    if idle > config.idle_timeout:
        return ScaleDecision(config.min, ScalingRule.IDLE, f"idle for {idle:.0f} s")
    reason = f"idle for {idle:.0f} s; the idle timeout is {config.idle_timeout:g} s"
    return ScaleDecision(current, ScalingRule.STEADY, reason)


def _decide_at_low_utilization(pressure: PoolPressure, config: AutoscalerConfig) -> ScaleDecision | None:
    numerator, denominator = LOW_UTILIZATION
    if pressure.running * denominator >= pressure.capacity * numerator:
        return None
    needed = _nodes_for_slots(pressure.running, config.slots_per_node) + 1
    used = f"{_format_slots(pressure.running)} of {_format_slots(pressure.capacity)} in use"
    return ScaleDecision(min(needed, pressure.nodes), ScalingRule.LOW_UTILIZATION, used)


def _apply_limits(config: AutoscalerConfig, decision: ScaleDecision) -> ScaleDecision:
    minimum = max(config.min, config.ready_threshold) if config.min > 0 else 0
    desired = min(max(decision.desired, minimum), config.max)
    if desired == decision.desired:
        return decision
    limit_note = (
        f"limited to the maximum of {config.max}"
        if desired < decision.desired
        else f"raised to the minimum of {minimum}"
    )
    return ScaleDecision(desired, decision.rule, f"{decision.reason}; {limit_note}")


def _is_cooling_down(config: AutoscalerConfig, clock: ScalingTimes) -> bool:
    if clock.last_scaled_at is None:
        return False
    return 0 <= clock.now - clock.last_scaled_at < config.cooldown


def _nodes_for_slots(amount: int, slots_per_node: int) -> int:
    return -(-amount // max(slots_per_node, 1))


def _format_slots(thousandths: int) -> str:
    return "1 slot" if thousandths == 1000 else f"{thousandths / 1000:g} slots"


def _format_nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
