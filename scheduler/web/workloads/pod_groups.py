"""Table of a workload's pods. Pods with the same node, outcome and limits share one row."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime

from berth.core.wording.words import format_pod_names, format_ranges, list_ranges
from pools.engine.pod_limits import limits_in_api_units
from projects.models import Pod
from scheduler.web.workloads.details import PodPlacement, describe_pod_limits


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one run on one node with the same state, outcome and limits."""

    placements: Sequence[PodPlacement]
    failed_first: bool = False  # True if the group's only pod failed before all other pods

    @property
    def first_pod(self) -> Pod:
        return self.placements[0].pod

    @property
    def names(self) -> str:
        return format_pod_names((each.pod.role, each.pod.index) for each in self.placements)

    @property
    def ranks(self) -> str:
        return format_ranges(each.pod.rank for each in self.placements)

    @property
    def devices(self) -> list[str] | None:
        """The device indices, such as "0 to 3" and "6", or None if the pods have no allocation."""
        allocations = [each.allocation for each in self.placements if each.allocation]
        return list_ranges(device for row in allocations for device in row.devices) if allocations else None

    @property
    def gpus(self) -> int:
        return sum(each.gpus for each in self.placements)

    @property
    def since(self) -> datetime:
        return min(each.pod.since for each in self.placements)

    @property
    def has_limits(self) -> bool:
        values = limits_in_api_units(self.first_pod.limits)
        return bool(values["memory_mib"] or values["cpu"])

    @property
    def limits(self) -> list[tuple[str, str]]:
        """A line for each limit of the pods, with the highest memory peak."""
        peaks = [each.pod.memory_peak_mib for each in self.placements]
        highest = max((peak for peak in peaks if peak is not None), default=None)
        return describe_pod_limits(limits_in_api_units(self.first_pod.limits), highest)


@dataclass(frozen=True, slots=True)
class PodTable:
    """Table of the pods in one run, or in all earlier runs."""

    rows: Sequence[PodGroup]

    @property
    def count(self) -> int:
        return sum(len(row.placements) for row in self.rows)

    @property
    def is_ended(self) -> bool:
        """Whether all pods have ended. If so, the time of their last change is the time when they ended."""
        return all(each.pod.ended_at is not None for row in self.rows for each in row.placements)

    @property
    def has_gpus(self) -> bool:
        return any(row.gpus or row.devices for row in self.rows)

    @property
    def has_limits(self) -> bool:
        """Whether any pod has a limit. If no pod has a limit, the table omits the column of limits and memory
        peaks.
        """
        return any(row.has_limits for row in self.rows)


def pod_table(placements: Sequence[PodPlacement], first_failed: Pod | None = None) -> PodTable:
    """Group the pods of a run that have the same node, outcome and limits, in rank order.

    The pod that failed first has its own row at the top.
    """
    groups: dict[Hashable, list[PodPlacement]] = {}
    for each in placements:
        pod = each.pod
        outcome = (pod.state, pod.exit_code, pod.signal, pod.message, pod.stop_reason)
        limits = tuple(sorted(limits_in_api_units(pod.limits).items()))
        key = (pod.run, pod.node_id, outcome, limits, pod == first_failed)
        groups.setdefault(key, []).append(each)
    has_others = len(placements) > 1
    rows = [
        PodGroup(group, failed_first=has_others and group[0].pod == first_failed) for group in groups.values()
    ]
    return PodTable(sorted(rows, key=lambda row: not row.failed_first))
