"""Desired number of nodes of an elastic pool, from its demand."""

from dataclasses import dataclass
from enum import StrEnum

LOW_UTILISATION = (3, 10)  # below three tenths of the capacity
BINDING = {"cpu": "CPU", "memory_mib": "memory", "pods": "number of pods"}


@dataclass(frozen=True, slots=True)
class Pressure:
    """The load on a pool. Queued, running and capacity are thousandths of slots.

    `queued` is the work that waits for nodes, may run by its limits and fits this pool, and the work reserved
    on nodes that still boot; `binding` is the resource by which it fills the most slots. `nodes` are ready.
    `gang_nodes` is the number of empty nodes that hold the queued work, gang by gang.
    `booting` nodes are ordered and not ready yet.
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
    """`slots_per_node` in thousandths, durations in seconds.

    `ready_threshold`: while the pool has not taken on work yet, and with fewer nodes never will; 0 once it
    has. A pool that may have no node at all waits for work before it heeds it.
    """

    min: int
    max: int
    slots_per_node: int
    ready_threshold: int = 0
    cooldown: float = 30
    idle_timeout: float = 60


@dataclass(frozen=True, slots=True)
class ClockValues:
    """Seconds on one clock; None: never, or not idle, or no end."""

    now: float
    last_scaled_at: float | None = None
    idle_since: float | None = None
    expires_at: float | None = None


class Rule(StrEnum):
    EXPIRED = "expired"
    QUEUED = "queued"
    IDLE = "idle"
    LOW_UTILISATION = "low_utilisation"
    STEADY = "steady"


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    desired: int
    rule: Rule
    reason: str
    held: bool = False  # the rule says less, the cooldown says not yet


def desired_nodes(
    pressure: Pressure, current_desired: int, config: AutoscalerConfig, clock: ClockValues
) -> ScaleDecision:
    """The first rule that applies; only a step down waits for the cooldown."""
    if clock.expires_at is not None and clock.now >= clock.expires_at:
        return ScaleDecision(0, Rule.EXPIRED, "the pool has expired")
    decision = (
        _for_the_queue(pressure, current_desired, config)
        or _when_idle(pressure, current_desired, config, clock)
        or _when_hardly_used(pressure, config)
        or ScaleDecision(current_desired, Rule.STEADY, "demand is met")
    )
    bounded = _within(config, decision)
    if bounded.desired < current_desired and _cooling(config, clock):
        return ScaleDecision(
            current_desired, bounded.rule, f"{bounded.reason}; waiting for the cooldown", held=True
        )
    return bounded


def _for_the_queue(pressure: Pressure, current: int, config: AutoscalerConfig) -> ScaleDecision | None:
    if pressure.queued <= 0:
        return None
    by_slots = _ceil(pressure.queued, config.slots_per_node)
    more = max(by_slots, pressure.gang_nodes)
    desired = max(pressure.nodes + more, current, config.ready_threshold)
    by = "" if pressure.binding == "gpu" else f" by {BINDING.get(pressure.binding, pressure.binding)}"
    reason = f"{_slots(pressure.queued)} queued{by}: {_nodes(more)} on top of {pressure.nodes} ready"
    return ScaleDecision(desired, Rule.QUEUED, reason)


def _when_idle(
    pressure: Pressure, current: int, config: AutoscalerConfig, clock: ClockValues
) -> ScaleDecision | None:
    if pressure.running > 0:
        return None
    if pressure.nodes <= 0 and pressure.booting <= 0:
        return ScaleDecision(config.min, Rule.IDLE, "no nodes and no queued work")
    idle = 0.0 if clock.idle_since is None else clock.now - clock.idle_since
    if idle > config.idle_timeout:
        return ScaleDecision(config.min, Rule.IDLE, f"idle for {idle:.0f} s")
    reason = f"idle for {idle:.0f} s; the idle timeout is {config.idle_timeout:g} s"
    return ScaleDecision(current, Rule.STEADY, reason)


def _when_hardly_used(pressure: Pressure, config: AutoscalerConfig) -> ScaleDecision | None:
    part, whole = LOW_UTILISATION
    if pressure.running * whole >= pressure.capacity * part:
        return None
    needed = _ceil(pressure.running, config.slots_per_node) + 1
    used = f"{_slots(pressure.running)} of {_slots(pressure.capacity)} in use"
    return ScaleDecision(min(needed, pressure.nodes), Rule.LOW_UTILISATION, used)


def _within(config: AutoscalerConfig, decision: ScaleDecision) -> ScaleDecision:
    floor = max(config.min, config.ready_threshold) if config.min > 0 else 0
    desired = min(max(decision.desired, floor), config.max)
    if desired == decision.desired:
        return decision
    bound = (
        f"limited to the maximum of {config.max}"
        if desired < decision.desired
        else f"raised to the minimum of {floor}"
    )
    return ScaleDecision(desired, decision.rule, f"{decision.reason}; {bound}")


def _cooling(config: AutoscalerConfig, clock: ClockValues) -> bool:
    """A clock that was set back ends the cooldown, or it might last for years."""
    if clock.last_scaled_at is None:
        return False
    return 0 <= clock.now - clock.last_scaled_at < config.cooldown


def _ceil(amount: int, slots_per_node: int) -> int:
    return -(-amount // max(slots_per_node, 1))


def _slots(thousandths: int) -> str:
    return "1 slot" if thousandths == 1000 else f"{thousandths / 1000:g} slots"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
