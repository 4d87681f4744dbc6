"""Load a scenario as a snapshot, with errors that name the invalid key."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from berth.core.problems import Problem, format_value
from berth.core.spec.parsing.findings import convert_errors
from berth.core.spec.parsing.parse import is_too_deep
from scheduler.engine.from_spec import to_timestamp
from scheduler.engine.model import Snapshot
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.nodes import read_nodes, read_pools
from scheduler.simulator.scenario.parse import DEPTH_MAX, read
from scheduler.simulator.scenario.queues import read_queues
from scheduler.simulator.scenario.references import broken_references
from scheduler.simulator.scenario.schema import ScenarioDocument
from scheduler.simulator.scenario.workloads import read_reservations, read_workloads

ORIGIN = to_timestamp(datetime(2026, 1, 1, tzinfo=timezone.utc))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario's snapshot, and the number of seconds between two cycles."""

    snapshot: Snapshot
    cycle_seconds: int = 1


def load(source: object) -> Scenario:
    """Load a scenario from a path or from data. Raises ScenarioError if it is invalid."""
    data = read(source) if isinstance(source, str | Path) else source
    document = _parse_document(data)
    if problems := list(broken_references(document)):
        raise ScenarioError(problems)
    now = ORIGIN if document.now is None else to_timestamp(document.now)
    nodes = read_nodes(document)
    pools = read_pools(document, nodes)
    workloads = read_workloads(document, pools, nodes, now)
    snapshot = Snapshot(
        now=now,
        pools=pools,
        nodes=nodes,
        queues=read_queues(document, pools, nodes),
        workloads=workloads,
        reservations=read_reservations(document, workloads, nodes),
    )
    return Scenario(snapshot, document.cycle_seconds)


def _parse_document(data: object) -> ScenarioDocument:
    if not isinstance(data, Mapping):
        raise ScenarioError([Problem("", "is not a scenario", format_value(data), "keys and values")])
    if is_too_deep(data, DEPTH_MAX):
        raise ScenarioError([Problem("", "too deep", "", f"at most {DEPTH_MAX} nested levels")])
    try:
        return ScenarioDocument.model_validate(data, context={"free_names": True})
    except ValidationError as error:
        raise ScenarioError(convert_errors(error, ScenarioDocument)) from None
