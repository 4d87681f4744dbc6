"""The engine's view of all live workloads.

Only workloads that may have changed are rebuilt. All others keep the same engine object.
"""

import uuid
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from berth.core.spec import WorkloadSpec
from projects.models import Phase, PodState
from scheduler.engine import model
from scheduler.loop.observe.dependencies import (
    NO_DEPENDENCIES,
    Dependencies,
    find_dependencies,
    has_applicable_dependencies,
)
from scheduler.loop.observe.image_policies import NONE, ImagePolicies, Rejections
from scheduler.loop.observe.live_rows import PHASES_WITH_PODS, PODS, WORKLOADS, PodRow, WorkloadRow
from scheduler.loop.observe.mirror import Mirror
from scheduler.loop.observe.queues import Queues
from scheduler.loop.observe.specs import ParsedSpec, SpecCache
from scheduler.loop.observe.volumes import VolumeRejections
from scheduler.loop.observe.workloads import (
    ObservedWorkload,
    WorkloadEntry,
    WorkloadNames,
    can_change_with_time,
    deferred_pool,
    to_observed_workload,
)

WAITING_PHASES = (Phase.PENDING, Phase.RESERVED)


@dataclass(frozen=True, slots=True)
class ObservationValues:
    """Values that are read once per observation and used to convert workloads."""

    now: datetime
    queues: Queues
    policies: ImagePolicies
    volumes: VolumeRejections
    nodes: Mapping[int, str]  # node names by ID
    specs: SpecCache


@dataclass(slots=True)
class LiveWorkloads:
    """Engine objects for live workloads, as of the last observation. Not thread-safe."""

    # Observed workloads by their names in the engine.
    observed: dict[str, ObservedWorkload] = field(default_factory=dict)
    placeholders: tuple[model.Workload, ...] = ()  # placeholders for dependencies that are not live
    never_met: frozenset[uuid.UUID] = frozenset()  # workloads with a dependency that can no longer be met
    _workload_rows: Mirror[WorkloadRow] = field(default_factory=lambda: Mirror(WORKLOADS))
    _pod_rows: Mirror[PodRow] = field(default_factory=lambda: Mirror(PODS))
    # Workloads and pods that have changed since the pods were last grouped.
    _changed_workloads: set[uuid.UUID] = field(default_factory=set)
    _changed_pods: set[uuid.UUID] = field(default_factory=set)
    # All mirrored pods, by workload and pod ID.
    _grouped_pods: dict[uuid.UUID, dict[uuid.UUID, PodRow]] = field(default_factory=dict)
    _owners: dict[uuid.UUID, uuid.UUID] = field(default_factory=dict)  # workload ID of each grouped pod
    _entries: dict[uuid.UUID, WorkloadEntry] = field(default_factory=dict)
    _unsettled: set[uuid.UUID] = field(default_factory=set)
    # Pods of each entry, in the order of roles and indexes.
    _pods: dict[uuid.UUID, list[PodRow]] = field(default_factory=dict)
    _nodes: Mapping[int, str] = field(default_factory=dict)  # node names by ID
    _shared: object = None  # values that all entries depend on
    _ids: list[int] = field(default_factory=list)  # IDs of all entries, sorted
    # Engine objects in the order of `_ids`.
    _engine_objects: list[model.Workload] = field(default_factory=list)

    def observe(self, around: ObservationValues) -> None:
        """Read the changed rows and rebuild the affected workloads."""
        before = self._shared
        self._shared = None  # after a failure, the next observation rebuilds everything
        self._changed_workloads |= self._workload_rows.read()
        self.read_pods()
        rows = self._workload_rows.rows
        due = self._unsettled | self._group_pods(around.nodes)
        shared = (
            around.queues.projects, around.queues.project_names, around.policies.settings,
            around.volumes.settings,
        )  # fmt: skip
        if shared != before:
            due |= rows.keys() | self._entries.keys()
        due_rows = []
        for pk in due:
            if pk in rows:
                due_rows.append(rows[pk])
            else:
                self._remove_workload(pk)
        names = {row.pk: f"{around.queues.project_names[row.project_id]}/{row.name}" for row in due_rows}
        parsed = around.specs.get_all({row.pk: row.edits for row in due_rows})
        around.specs.retain_documents(rows)
        dependencies = self._find_dependencies(due_rows, names, parsed, around.queues)
        self.placeholders, self._unsettled = dependencies.placeholders, set()
        self.never_met = dependencies.never_met
        for row in due_rows:
            spec = parsed[row.pk].spec
            pending = spec if row.phase == Phase.PENDING else None
            waiting = spec if row.phase in WAITING_PHASES else None
            workload_names = WorkloadNames(
                names[row.pk],
                around.queues.projects[row.project_id],
                dependencies.unmet.get(row.pk, ()),
                parsed[row.pk],
                NONE if pending is None else _rejections_by_pool(row, pending, around),
                None if waiting is None else deferred_pool(row.pending_since, waiting, around.now),
            )
            own_pods = self._pods.get(row.pk, ())
            self._convert_if_changed(row, own_pods, workload_names, around)
            if not _is_unrestricted(row, spec) or can_change_with_time(row, own_pods):
                self._unsettled.add(row.pk)
        self._shared = shared

    def engine_objects(self) -> tuple[model.Workload, ...]:
        """Return the workloads' engine objects, sorted by workload ID, followed by the placeholders for
        awaited workloads.
        """
        return tuple(self._engine_objects) + self.placeholders

    def pod_ids(self) -> dict[tuple[str, str, int], uuid.UUID]:
        """Return the pod IDs, keyed by the pods' names in the engine."""
        return {name: pod for pk in self._pods for name, pod in self._entries[pk].pod_ids}

    def engine_names(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Return the names that the live workloads have in the engine, keyed by workload ID."""
        return {pk: entry.names.name for pk in ids if (entry := self._entries.get(pk)) is not None}

    def read_pods(self) -> Collection[PodRow]:
        """Return the live pods, and the succeeded pods of running workloads."""
        self._changed_pods |= self._pod_rows.read()
        return self._pod_rows.rows.values()

    def _group_pods(self, nodes: Mapping[int, str]) -> set[uuid.UUID]:
        """Update each workload's pods. Return the IDs of workloads whose row or pods have changed."""
        affected = {*self._changed_workloads}
        for pk in self._changed_pods:
            pod, owner = self._pod_rows.rows.get(pk), self._remove_pod_from_group(pk)
            if owner is not None:
                affected.add(owner)
            if pod is not None:
                affected.add(pod.workload_id)
                self._owners[pk] = pod.workload_id
                self._grouped_pods.setdefault(pod.workload_id, {})[pk] = pod
        if nodes != self._nodes:
            affected |= self._grouped_pods.keys()
        self._nodes = nodes
        for workload in affected:
            self._select_pods(workload)
        self._changed_workloads.clear()
        self._changed_pods.clear()
        return affected

    def _select_pods(self, workload: uuid.UUID) -> None:
        """Select the pods of the current run that have succeeded, and the live pods on observed nodes."""
        row, selected = self._workload_rows.rows.get(workload), []
        for pod in [*self._grouped_pods.get(workload, {}).values()]:
            if pod.state != PodState.SUCCEEDED:
                if row is not None and pod.node_id in self._nodes:
                    selected.append(pod)
            elif self._has_stopped_running(workload, pod.run):
                self._remove_pod_from_group(pod.pk)
                del self._pod_rows.rows[pod.pk]
            elif row is not None and pod.run == row.run:
                selected.append(pod)
        if selected:
            selected.sort(key=lambda pod: (pod.role, pod.index, pod.created_at, pod.pk))
            self._pods[workload] = selected
        else:
            self._pods.pop(workload, None)

    def _has_stopped_running(self, workload: uuid.UUID, run: int) -> bool:
        """Return whether a run has ended according to the workload's row."""
        row = self._workload_rows.rows.get(workload)
        if row is None:
            return workload in self._changed_workloads
        return row.phase not in PHASES_WITH_PODS and run <= row.run

    def _remove_pod_from_group(self, pod: uuid.UUID) -> uuid.UUID | None:
        """Remove a pod from its group. Return the pod's workload, or None if the pod was in no group."""
        workload = self._owners.pop(pod, None)
        if workload is not None:
            del self._grouped_pods[workload][pod]
            if not self._grouped_pods[workload]:
                del self._grouped_pods[workload]
        return workload

    def _find_dependencies(
        self,
        rows: Sequence[WorkloadRow],
        names: Mapping[uuid.UUID, str],
        parsed: Mapping[uuid.UUID, ParsedSpec],
        queues: Queues,
    ) -> Dependencies:
        dependents = [
            (row, spec.after)
            for row in rows
            if (spec := parsed[row.pk].spec) is not None and has_applicable_dependencies(row, spec)
        ]
        if not dependents:
            return NO_DEPENDENCIES
        settled = {entry.names.name for pk, entry in self._entries.items() if pk not in names}
        return find_dependencies(dependents, settled.union(names.values()), queues)

    def _convert_if_changed(
        self, row: WorkloadRow, pods: Sequence[PodRow], names: WorkloadNames, around: ObservationValues
    ) -> None:
        before = self._entries.get(row.pk)
        node_names = [around.nodes.get(pod.node_id, "") for pod in pods]
        if (
            before is not None
            and not can_change_with_time(row, pods)
            and before[:4] == (row, pods, names, node_names)
        ):
            return
        entry = to_observed_workload(row, pods, names, node_names, around.now)
        if before is not None and before.workload == entry.workload:
            entry = entry._replace(workload=before.workload)
        if before is not None and before.names.name != names.name:
            self._remove_workload(row.pk)
        self._entries[row.pk], self.observed[names.name] = entry, entry.observed
        at = bisect_left(self._ids, row.pk.int)
        if at < len(self._ids) and self._ids[at] == row.pk.int:
            self._engine_objects[at] = entry.workload
        else:
            self._ids.insert(at, row.pk.int)
            self._engine_objects.insert(at, entry.workload)

    def _remove_workload(self, pk: uuid.UUID) -> None:
        entry = self._entries.pop(pk, None)
        if entry is None:
            return
        if self.observed[entry.names.name] is entry.observed:
            del self.observed[entry.names.name]  # a new workload may have the name of one that has ended
        at = bisect_left(self._ids, pk.int)
        del self._ids[at], self._engine_objects[at]


def _rejections_by_pool(row: WorkloadRow, spec: WorkloadSpec, around: ObservationValues) -> Rejections:
    of_image = around.policies.image_rejections(spec.image)
    if not spec.volumes:
        return of_image
    project = around.queues.project_names[row.project_id]
    return {**around.volumes.volume_rejections(project, [mount.name for mount in spec.volumes]), **of_image}


def _is_unrestricted(row: WorkloadRow, spec: WorkloadSpec | None) -> bool:
    """Return whether a workload has no dependencies and may use all of its pools now."""
    return spec is None or (not has_applicable_dependencies(row, spec) and spec.burst_after is None)
