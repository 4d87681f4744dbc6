"""Run a scenario cycle by cycle."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from berth.core.problems import Problem, format_value
from scheduler.engine.actions import ACTIONS
from scheduler.engine.decide import decide
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.simulator.result import build_result, plan_decisions
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.load import Scenario, load
from scheduler.simulator.simulation import SimulatedCluster
from scheduler.simulator.steady_state import is_steady_state
from scheduler.simulator.usage import UsageMeter

MAX_CYCLES = 10_000  # maximum number of cycles to simulate until a steady state, and to list in a result


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """Result of a simulation: the snapshot and plan of each cycle, and the cluster after the last cycle."""

    cycles: tuple[tuple[Snapshot, Plan], ...]
    after: Snapshot
    seconds: float  # total decision time of all cycles
    skipped: int = 0  # number of cycles skipped before the last cycle, because the state could not change


def simulate(
    scenario: object,
    cycles: int = 1,
    until_stable: bool = False,
    actions: Collection[str] | None = None,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Simulate a scenario, given as an object, parsed data or a file.

    Return the result in the `berth.plan/1` format.
    """
    loaded = scenario if isinstance(scenario, Scenario) else load(scenario)
    return run_result(play_scenario(loaded, cycles, until_stable, actions, stopwatch))


def run_result(played: SimulationRun) -> dict[str, Any]:
    """Return the result in the `berth.plan/1` format. Skipped cycles are listed unless there are too many."""
    decisions = [plan_decisions(snapshot, plan) for snapshot, plan in played.cycles]
    if len(decisions) + played.skipped <= MAX_CYCLES:
        decisions[-1:-1] = [[] for _ in range(played.skipped)]
    return build_result(decisions, played.after, played.cycles[-1][1], played.seconds)


def play_scenario(
    scenario: Scenario,
    cycles: int = 1,
    until_stable: bool = False,
    actions: Collection[str] | None = None,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> SimulationRun:
    if cycles < 1:
        raise ScenarioError([Problem("cycles", "too few", format_value(cycles), "1 or more")])
    if unknown := sorted(set(actions or ()) - set(ACTIONS)):
        raise ScenarioError(
            [Problem("actions", "no such action", format_value(unknown[0]), ", ".join(ACTIONS))]
        )
    world, meter = SimulatedCluster(scenario.snapshot), UsageMeter(scenario.snapshot)
    names = None if actions is None else tuple(actions)
    played: list[tuple[Snapshot, Plan]] = []
    decision_seconds, skipped, remaining = 0.0, 0, max(cycles, MAX_CYCLES) if until_stable else cycles
    while remaining:
        if played:
            _advance_clock(world, meter, played[-1][1], scenario.cycle_seconds)
        snapshot = replace(world.snapshot(), queues=meter.with_usage(scenario.snapshot.queues))
        begin = stopwatch()
        plan = decide(snapshot, names)
        decision_seconds += stopwatch() - begin
        remaining -= 1
        played.append((snapshot, plan))
        world.apply_plan(plan)
        is_steady = remaining > 1 and is_steady_state(played[-2:], world)
        if until_stable and not plan.bundles and (is_steady or world.is_settled):
            break
        if is_steady:  # run the last cycle so that the times in the result are up to date
            skipped, remaining = remaining - 1, 1
            _advance_clock(world, meter, plan, scenario.cycle_seconds * skipped)
    return SimulationRun(tuple(played), world.snapshot(), decision_seconds, skipped)


def _advance_clock(world: SimulatedCluster, meter: UsageMeter, plan: Plan, seconds: int) -> None:
    meter.advance(world.snapshot(), plan, world.now + seconds)
    world.advance(seconds)
