"""Read, write and run scenarios: YAML files that describe a cluster and its workloads."""

from scheduler.simulator.command import run
from scheduler.simulator.cycles import play_scenario, simulate
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.export import snapshot_to_scenario
from scheduler.simulator.scenario.load import Scenario, load

__all__ = ["Scenario", "ScenarioError", "load", "play_scenario", "run", "simulate", "snapshot_to_scenario"]
