"""Run a scenario cycle by cycle."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from berth.core.problems import Problem, shown
from scheduler.engine.actions import ACTIONS
from scheduler.engine.decide import decide
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.simulator.at_rest import is_at_rest
from scheduler.simulator.result import answer, decisions_of
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.load import Scenario, load
from scheduler.simulator.simulation import World
from scheduler.simulator.usage import Meter

MOST_CYCLES = 10_000  # maximum number of cycles in a run until stable, and of cycles listed in a result


@dataclass(frozen=True, slots=True)
class Played:
    """Result of a run: each cycle's snapshot and plan, and the cluster after the last one."""

    cycles: tuple[tuple[Snapshot, Plan], ...]
    after: Snapshot
    seconds: float  # total decision time
    spared: int = 0  # cycles skipped before the last one, because nothing could change


def simulate(
    scenario: object,
    cycles: int = 1,
    until_stable: bool = False,
    actions: Collection[str] | None = None,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Simulate a `Scenario`, its data or its file, and return the result in format `berth.plan/1`."""
    loaded = scenario if isinstance(scenario, Scenario) else load(scenario)
    return answer_of(play(loaded, cycles, until_stable, actions, stopwatch))


def answer_of(played: Played) -> dict[str, Any]:
    """Return the result in format `berth.plan/1`, with skipped cycles unless there are too many."""
    decisions = [decisions_of(snapshot, plan) for snapshot, plan in played.cycles]
    if len(decisions) + played.spared <= MOST_CYCLES:
        decisions[-1:-1] = [[] for _ in range(played.spared)]
    return answer(decisions, played.after, played.cycles[-1][1], played.seconds)


def play(
    scenario: Scenario,
    cycles: int = 1,
    until_stable: bool = False,
    actions: Collection[str] | None = None,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> Played:
    if cycles < 1:
        raise ScenarioError([Problem("cycles", "too few", shown(cycles), "1 or more")])
    if unknown := sorted(set(actions or ()) - set(ACTIONS)):
        raise ScenarioError([Problem("actions", "no such action", shown(unknown[0]), ", ".join(ACTIONS))])
    world, meter = World(scenario.snapshot), Meter(scenario.snapshot)
    names = None if actions is None else tuple(actions)
    played: list[tuple[Snapshot, Plan]] = []
    spent, spared, left = 0.0, 0, max(cycles, MOST_CYCLES) if until_stable else cycles
    while left:
        if played:
            _advance(world, meter, played[-1][1], scenario.cycle_seconds)
        snapshot = replace(world.snapshot(), queues=meter.written(scenario.snapshot.queues))
        begin = stopwatch()
        plan = decide(snapshot, names)
        spent += stopwatch() - begin
        left -= 1
        played.append((snapshot, plan))
        world.carry_out(plan)
        rests = left > 1 and is_at_rest(played[-2:], world)
        if until_stable and not plan.bundles and (rests or world.is_settled):
            break
        if rests:  # decide the last cycle again, so that its times are current
            spared, left = left - 1, 1
            _advance(world, meter, plan, scenario.cycle_seconds * spared)
    return Played(tuple(played), world.snapshot(), spent, spared)


def _advance(world: World, meter: Meter, plan: Plan, seconds: int) -> None:
    meter.passes(world.snapshot(), plan, world.now + seconds)
    world.passes(seconds)
