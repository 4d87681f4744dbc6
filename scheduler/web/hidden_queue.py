"""Placeholders on the queue page for workloads that are hidden from the user."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import F, Max, Q, QuerySet, Sum, Value

from pools.models import NodePool
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.models import Phase
from projects.selectors import workload_count
from scheduler.reports.queues.queue_list import (
    NO_POSITION,
    NOT_EVALUATED,
    all_queued_workloads,
    queued_workloads,
)
from scheduler.web.queue_arrays import one_row_per_array
from scheduler.web.queue_rows import QUEUED, QueueEntry


@dataclass(frozen=True, slots=True)
class HiddenWorkloadsRow:
    """Row for workloads of projects that the user cannot see."""

    position: str  # queue position, or the phase of workloads without one
    is_plural: bool
    gpu_milli: int  # requested milli-GPU, in total
    is_phase: bool = False


@dataclass(frozen=True, slots=True)
class HiddenWorkloads:
    """Workloads of one pool's queue that the user cannot see.

    For reserved and new workloads, only their number and their requested milli-GPU are known. `positions`
    contains the queue positions of all other workloads in ascending order, possibly with gaps and
    repetitions. `gpu_milli` contains the milli-GPU requested at each position.
    """

    reserved: tuple[int, int] = (0, 0)
    new: tuple[int, int] = (0, 0)
    positions: Sequence[int] = ()
    gpu_milli: Sequence[int] = ()


def hidden_workloads(actor: Actor, pool: NodePool | None) -> dict[str, HiddenWorkloads]:
    """Return the workloads that the user cannot see, keyed by pool name.

    The result is empty for platform admins.
    """
    if is_platform_admin(actor):
        return {}
    place = F("queue_pool") if pool is None else Value(pool.name)
    rows = all_queued_workloads(pool).exclude(project__in=visible_projects(actor))
    is_reserved, is_evaluated = Q(phase=Phase.RESERVED), Q(queue_position__lt=NOT_EVALUATED)
    is_new, has_position = ~is_reserved & ~is_evaluated, is_evaluated & ~is_reserved
    sums = rows.values_list(place).annotate(
        reserved=workload_count(is_reserved),
        reserved_gpu_milli=Sum("gpu_milli_min", filter=is_reserved, default=0),
        new=workload_count(is_new),
        new_gpu_milli=Sum("gpu_milli_min", filter=is_new, default=0),
        positions=ArrayAgg("queue_position", filter=has_position, default=[]),
        gpu_milli=ArrayAgg("gpu_milli_min", filter=has_position, default=[]),
    )
    result = {}
    for name, reserved, reserved_gpu_milli, new, new_gpu_milli, positions, gpu_milli in sums:
        queued = sorted(zip(positions, gpu_milli, strict=True))
        result[name] = HiddenWorkloads(
            (reserved, reserved_gpu_milli),
            (new, new_gpu_milli),
            [position for position, _ in queued],
            [milli for _, milli in queued],
        )
    return result


def add_placeholders(
    entries: Sequence[QueueEntry], hidden: HiddenWorkloads, *, previous: int, is_last: bool
) -> None:
    """Add placeholders to one pool's rows, which must be in queue order and already have sections.

    `previous` is the position before the rows, or NO_POSITION. `is_last` says whether the rows are at the end
    of the pool's queue.
    """
    shown, has_reserved = bisect_left(hidden.positions, previous), previous != NO_POSITION
    for row, *_ in entries:
        if row.phase == Phase.RESERVED:
            continue
        reserved = [] if has_reserved else _rows_without_position(hidden.reserved, "reserved")
        end = bisect_left(hidden.positions, row.queue_position)
        queued = _rows_with_positions(hidden, shown, end)
        shown, has_reserved = end, True
        begins_queue = row.section is not None and row.section.title == QUEUED
        row.hidden_above, row.hidden_before = (reserved, queued) if begins_queue else (reserved + queued, [])
    last = entries[-1][0]
    if is_last:
        reserved = [] if has_reserved else _rows_without_position(hidden.reserved, "reserved")
        queued = _rows_with_positions(hidden, shown, len(hidden.positions))
        last.hidden_after = reserved + queued + _rows_without_position(hidden.new, "new")
    else:
        end = bisect_left(hidden.positions, last.queue_position)
        last.hidden_after = _rows_with_positions(hidden, shown, end)


def placeholders(hidden: HiddenWorkloads) -> list[HiddenWorkloadsRow]:
    """Return the placeholders of a queue in which the user can see no workload."""
    return [
        *_rows_without_position(hidden.reserved, "reserved"),
        *_rows_with_positions(hidden, 0, len(hidden.positions)),
        *_rows_without_position(hidden.new, "new"),
    ]


def position_before(actor: Actor, pool: NodePool | None, first: QueueEntry) -> int:
    """Return the queue position of the last row before `first` in its pool's queue, or NO_POSITION."""
    before = _workloads_before_or_after(actor, pool, first, "lt")
    return before.aggregate(last=Max("queue_position"))["last"] or NO_POSITION


def is_last_in_queue(actor: Actor, pool: NodePool | None, last: QueueEntry) -> bool:
    """Return whether no row follows `last` in its pool's queue."""
    return not _workloads_before_or_after(actor, pool, last, "gt").exists()


def _workloads_before_or_after(
    actor: Actor, pool: NodePool | None, entry: QueueEntry, side: str
) -> QuerySet[Any]:
    """Return the rows that come before ("lt") or after ("gt") the given row in its pool's queue, in no
    particular order.
    """
    row = entry[0]
    same = Q(queue_order=row.queue_order) & Q((f"pk__{side}", row.pk))
    beyond = Q((f"queue_order__{side}", row.queue_order)) | same
    if pool is None:
        beyond &= Q(queue_pool=row.queue_pool)
    return one_row_per_array(queued_workloads(actor, pool).order_by()).filter(beyond)


def _rows_without_position(hidden: tuple[int, int], phase: str) -> list[HiddenWorkloadsRow]:
    count, gpu_milli = hidden
    return [HiddenWorkloadsRow(phase, count > 1, gpu_milli, is_phase=True)] if count else []


def _rows_with_positions(hidden: HiddenWorkloads, start: int, end: int) -> list[HiddenWorkloadsRow]:
    """Return one placeholder for the positions at the indexes from `start` to `end` - 1.

    Return an empty list if there are no such positions.
    """
    if start >= end:
        return []
    first, last = hidden.positions[start], hidden.positions[end - 1]
    position = str(first) if first == last else f"{first}\N{EN DASH}{last}"
    return [HiddenWorkloadsRow(position, end - start > 1, sum(hidden.gpu_milli[start:end]))]
