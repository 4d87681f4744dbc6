"""Database rows of live workloads and pods, reduced to the columns that the scheduler reads."""

import uuid
from dataclasses import dataclass, fields
from datetime import datetime
from typing import NamedTuple

from projects.models import Phase, PodState
from projects.models.workloads import LIVE_POD_STATES, OBSERVED_PHASES
from scheduler.loop.observe.mirror import MirrorQuery

# Phases in which a workload's succeeded pods are read too, because decisions need them.
PHASES_WITH_PODS = (Phase.STARTING, Phase.RUNNING)


class WorkloadRow(NamedTuple):
    """Columns of a workload that a decision needs.

    The trigger on `projects_workload` lists the same columns.
    """

    pk: uuid.UUID
    project_id: int
    name: str
    version: int
    phase: str
    pending_since: datetime
    next_phase: str
    run: int
    pools: list[str]
    priority: int
    preemptible: bool
    submitted_at: datetime
    requeued_at: datetime | None
    edits: int
    started_at: datetime | None
    last_checkpoint_at: datetime | None
    stale_since: datetime | None
    backoff_until: datetime | None
    max_runtime: int | None
    preemptions: int
    restarts: int
    start_refusal: str
    avoided_nodes: list[str]
    code_wait: str


@dataclass(frozen=True, slots=True)
class PodRow:
    """Pod columns that scheduling decisions need, plus the pod's devices.

    The trigger on `projects_pod` must list the same columns.
    """

    pk: uuid.UUID
    workload_id: uuid.UUID
    role: str
    index: int
    run: int
    node_id: int
    state: str
    since: datetime
    created_at: datetime
    started_at: datetime | None
    warnings: int
    devices: list[int]
    gpu_milli: int


def _quote_values(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


WORKLOADS = MirrorQuery(
    columns=", ".join(f"work.{name}" for name in ("id", *WorkloadRow._fields[1:])),
    source="projects_workload AS work",
    changed_in="work.changed_in",
    is_live=f"(work.phase IN ({_quote_values(OBSERVED_PHASES)}) AND NOT work.held)",
    build_row=WorkloadRow._make,
)

# While a workload runs, its succeeded pods count as live, whichever run they belong to.
HAS_SUCCEEDED = f"""
    pod.state = '{PodState.SUCCEEDED}' AND EXISTS (
        SELECT FROM projects_workload AS work
         WHERE work.id = pod.workload_id AND work.phase IN ({_quote_values(PHASES_WITH_PODS)}))
"""
POD_COLUMNS = ("id", *[column.name for column in fields(PodRow)][1:-2])
IS_LIVE_POD = f"pod.state IN ({_quote_values(LIVE_POD_STATES)})"
PODS = MirrorQuery(
    columns=(
        ", ".join(f"pod.{name}" for name in POD_COLUMNS)
        + ", coalesce(held.devices, '{}'), coalesce(held.gpu_milli, 0)"
    ),
    source="(projects_pod AS pod LEFT JOIN scheduler_allocation AS held ON held.pod_id = pod.id)",
    changed_in="pod.changed_in",
    is_live=f"({IS_LIVE_POD} OR {HAS_SUCCEEDED})",
    # A single condition for both kinds of pods would read the pods of all ended workloads.
    ids=f"""
        SELECT pod.id FROM projects_pod AS pod WHERE {IS_LIVE_POD}
        UNION ALL
        SELECT pod.id FROM projects_workload AS work JOIN projects_pod AS pod ON pod.workload_id = work.id
         WHERE work.phase IN ({_quote_values(PHASES_WITH_PODS)}) AND pod.state = '{PodState.SUCCEEDED}'
    """,  # noqa: S608
    build_row=lambda columns: PodRow(*columns),
)
