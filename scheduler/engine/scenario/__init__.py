"""Read, write and run scenarios: clusters described in YAML."""

from scheduler.engine.scenario.command import run
from scheduler.engine.scenario.dump import snapshot_to_scenario
from scheduler.engine.scenario.load import Scenario, load
from scheduler.engine.scenario.refusal import ScenarioError
from scheduler.engine.scenario.simulate import play, simulate

__all__ = ["Scenario", "ScenarioError", "load", "play", "run", "simulate", "snapshot_to_scenario"]
