"""Here we read, write and play scenarios: a cluster in words."""

from scheduler.engine.scenario.load import Scenario, load
from scheduler.engine.scenario.refusal import ScenarioError

__all__ = ["Scenario", "ScenarioError", "load"]
