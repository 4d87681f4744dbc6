"""Convert live workloads and pods into engine values.

Of each row only the columns that a decision needs are read. A workload whose rows are as they were keeps
the very description it had: nothing is made anew, and the engine sees at a glance that nothing changed.
"""

import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from projects.models import Phase, PodState
from scheduler.engine import model
from scheduler.engine.from_spec import growth_orders_nodes, seconds_of
from scheduler.row_versions import Question, Versions
from scheduler.specs import Meaning

STUCK_AFTER = timedelta(seconds=60)  # beyond its grace a stopping pod promises nothing any more


class WorkloadRow(NamedTuple):
    pk: uuid.UUID
    project_id: int
    name: str
    version: int
    phase: str
    next_phase: str
    run: int
    pools: list[str]
    priority: int
    preemptible: bool
    submitted_at: datetime
    started_at: datetime | None
    last_checkpoint_at: datetime | None
    stale_since: datetime | None
    backoff_until: datetime | None
    max_runtime: int | None
    preemptions: int
    restarts: int


@dataclass(frozen=True, slots=True)
class PodRow:
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
    devices: list[int]
    gpu_milli: int


WORKLOADS = Question(
    mark="concat(work.id, ' ', work.xmin, work.ctid)",
    columns=", ".join(f"work.{name}" for name in ("id", *WorkloadRow._fields[1:])),
    source="""FROM projects_workload AS work
              WHERE work.phase IN ('pending', 'reserved', 'starting', 'running', 'stopping')""",
    id="work.id",
    order="work.id",
    made=WorkloadRow._make,
)
PODS = Question(
    mark="concat(pod.id, ' ', pod.xmin, pod.ctid, ' ', held.xmin, held.ctid)",
    columns="""pod.id, pod.workload_id, pod.role, pod.index, pod.run, pod.node_id, pod.state, pod.since,
               pod.created_at, pod.started_at, coalesce(held.devices, '{}'), coalesce(held.gpu_milli, 0)""",
    source="""FROM projects_pod AS pod LEFT JOIN scheduler_allocation AS held ON held.pod_id = pod.id
              WHERE (pod.state IN ('starting', 'running', 'stopping')
                     OR pod.state = 'succeeded' AND EXISTS (
                        SELECT 1 FROM projects_workload AS work
                         WHERE work.id = pod.workload_id AND work.phase IN ('starting', 'running')))""",
    id="pod.id",
    order="pod.workload_id, pod.role, pod.index",
    made=lambda columns: PodRow(*columns),
)
PodsOf = Mapping[uuid.UUID, Sequence[PodRow]]


@dataclass(frozen=True, slots=True)
class SeenWorkload:
    """What commit compares with when it judges again."""

    pk: uuid.UUID
    version: int
    phase: str
    run: int
    meaning: Meaning


class Names(NamedTuple):
    """What the rows of one workload are called elsewhere."""

    name: str
    queue: str
    depends_on: tuple[str, ...]
    unsubmitted: tuple[str, ...]
    meaning: Meaning


class Described(NamedTuple):
    row: WorkloadRow
    pods: Sequence[PodRow]
    names: Names
    nodes: Sequence[str]  # of each pod's; empty for one that is gone
    workload: model.Workload
    seen: SeenWorkload
    stand: Sequence[tuple[tuple[str, str, int], uuid.UUID]]  # pods by what the engine calls them


@dataclass(slots=True)
class KnownWork:
    """What was made of each workload when it was last looked at."""

    rows: Versions[WorkloadRow] = field(default_factory=lambda: Versions(WORKLOADS))
    pods: Versions[PodRow] = field(default_factory=lambda: Versions(PODS))
    _of: dict[uuid.UUID, Described] = field(default_factory=dict)

    def described(
        self, row: WorkloadRow, pods: Sequence[PodRow], names: Names, nodes: Mapping[int, str], now: datetime
    ) -> Described:
        before = self._of.get(row.pk)
        where = [nodes.get(pod.node_id, "") for pod in pods]
        if (
            before is not None
            and not _depends_on_the_time(row, pods)
            and before[:4] == (row, pods, names, where)
        ):
            return before
        found = _described(row, pods, names, where, now)
        if before is not None and before.workload == found.workload:
            found = found._replace(workload=before.workload)
        self._of[row.pk] = found
        return found

    def keep_only(self, rows: Sequence[WorkloadRow]) -> None:
        """Forget workloads that ended."""
        if len(self._of) > len(rows):
            self._of = {row.pk: self._of[row.pk] for row in rows}


def by_workload(rows: Sequence[WorkloadRow], pods: Iterable[PodRow], nodes: Container[int]) -> PodsOf:
    """What stands on each workload's account. Pods of a node that is lost are gone: they hold nothing."""
    runs = {row.pk: row.run for row in rows}
    found: dict[uuid.UUID, list[PodRow]] = {}
    for pod in pods:
        run = runs.get(pod.workload_id)
        if run is None:
            continue
        if pod.run == run if pod.state == PodState.SUCCEEDED else pod.node_id in nodes:
            found.setdefault(pod.workload_id, []).append(pod)
    return found


def _depends_on_the_time(row: WorkloadRow, pods: Sequence[PodRow]) -> bool:
    """Who stops is given up on after a while."""
    return bool(pods) and (row.phase == Phase.STOPPING or any(pod.state == PodState.STOPPING for pod in pods))


def _described(
    row: WorkloadRow, pods: Sequence[PodRow], names: Names, nodes: Sequence[str], now: datetime
) -> Described:
    runs = row.phase in (Phase.RUNNING, Phase.STOPPING) and row.started_at is not None
    meaning, spec = names.meaning, names.meaning.spec
    described = model.Workload(
        name=names.name,
        project=names.queue,
        tree=meaning.tree,
        pools=tuple(row.pools),
        priority=row.priority,
        preemptible=row.preemptible,
        submitted=seconds_of(row.submitted_at),
        max_runtime=row.max_runtime,
        started=seconds_of(row.started_at) if runs and row.started_at else None,
        last_checkpoint=seconds_of(row.last_checkpoint_at) if row.last_checkpoint_at else None,
        preemptions=row.preemptions,
        restarts=row.restarts,
        backoff_until=seconds_of(row.backoff_until) if row.backoff_until else None,
        preemption_delay=spec.preemption_delay if spec else None,
        stale_gang_grace=spec.stale_gang_grace if spec else None,
        stale_since=seconds_of(row.stale_since) if row.stale_since else None,
        growth_orders_nodes=spec is None or growth_orders_nodes(spec),
        suspended=row.phase == Phase.STOPPING and row.next_phase != Phase.PENDING,
        misconfigured=meaning.trouble,
        depends_on=names.depends_on,
        unsubmitted=names.unsubmitted,
        pods=tuple(_pod(now, pod, node, row, meaning) for pod, node in zip(pods, nodes, strict=True)),
    )
    return Described(
        row,
        pods,
        names,
        nodes,
        described,
        SeenWorkload(row.pk, row.version, row.phase, row.run, meaning),
        [((names.name, pod.role, pod.index), pod.pk) for pod in pods],
    )


def _pod(now: datetime, pod: PodRow, node: str, row: WorkloadRow, meaning: Meaning) -> model.Pod:
    state = model.PodState.COMPLETED if pod.state == PodState.SUCCEEDED else model.PodState(pod.state)
    if row.phase == Phase.STOPPING and state in (model.PodState.RUNNING, model.PodState.STARTING):
        state = model.PodState.STOPPING
    if state is model.PodState.STOPPING and now > _promised_end(pod, meaning):
        state = model.PodState.STUCK
    return model.Pod(
        role=pod.role,
        index=pod.index,
        node=node,
        devices=tuple(pod.devices),
        milli=pod.gpu_milli,
        state=state,
        started=seconds_of(pod.started_at or pod.created_at),
    )


def _promised_end(pod: PodRow, meaning: Meaning) -> datetime:
    grace = meaning.spec.grace_period_seconds if meaning.spec else 0
    return pod.since + timedelta(seconds=grace) + STUCK_AFTER
