"""Placeholders on the queue page for workloads that the user may not see."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Max, Q

from pools.models import NodePool
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.models import Phase
from projects.selectors import workload_count
from scheduler.reports.queues.queue_list import NOT_EVALUATED, all_queued, queued_workloads
from scheduler.web.queue_rows import QUEUED, QueueEntry


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Row for workloads of projects that the user cannot see."""

    position: str  # or the phase of workloads without a position
    is_plural: bool
    is_phase: bool = False


@dataclass(frozen=True, slots=True)
class HiddenWorkloads:
    """Workloads of one pool's queue that the user cannot see. An array counts as one workload."""

    reserved: int = 0
    new: int = 0
    last_position: int = 0


def hidden_workloads(actor: Actor, pool: NodePool | None) -> dict[str, HiddenWorkloads]:
    """Return the workloads of each pool's queue that the user cannot see, by pool name."""
    if is_platform_admin(actor):
        return {}
    rows = all_queued(pool).exclude(project__in=visible_projects(actor)).values_list("queue_pool")
    evaluated = Q(queue_position__lt=NOT_EVALUATED)
    sums = rows.annotate(
        reserved=workload_count(Q(phase=Phase.RESERVED)),
        new=workload_count(~Q(phase=Phase.RESERVED) & ~evaluated),
        last=Max("queue_position", filter=evaluated),
    )
    return {name: HiddenWorkloads(reserved, new, last or 0) for name, reserved, new, last in sums}


def add_placeholders(
    entries: Sequence[QueueEntry], hidden: HiddenWorkloads, *, previous: int | None, is_last: bool
) -> None:
    """Add placeholders to the rows of one pool, which are in queue order and have their sections.

    `previous` is the last visible position before these rows, and None at the start of the pool's queue.
    `is_last` states whether these rows end the pool's queue.
    """
    position, has_reserved = previous or 0, bool(previous)
    for row, *_ in entries:
        missing = list[Placeholder]()
        if row.phase != Phase.RESERVED:
            if not has_reserved:
                missing += _without_position(hidden.reserved, "reserved")
                has_reserved = True
            end = row.queue_position if row.queue_position < NOT_EVALUATED else hidden.last_position + 1
            missing += _gap(position + 1, end - 1)
            position = max(position, end if row.queue_position < NOT_EVALUATED else end - 1)
        begins_queue = row.section is not None and row.section.title == QUEUED
        row.hidden_above = [each for each in missing if not begins_queue or each.is_phase]
        row.hidden_before = [each for each in missing if each not in row.hidden_above]
    if entries and is_last:
        entries[-1][0].hidden_after = [
            *(() if has_reserved else _without_position(hidden.reserved, "reserved")),
            *_gap(position + 1, hidden.last_position),
            *_without_position(hidden.new, "new"),
        ]


def placeholders(hidden: HiddenWorkloads) -> list[Placeholder]:
    """Return the placeholders of a queue in which the user can see no workload."""
    return [
        *_without_position(hidden.reserved, "reserved"),
        *_gap(1, hidden.last_position),
        *_without_position(hidden.new, "new"),
    ]


def last_position_before(actor: Actor, first: QueueEntry) -> int | None:
    """Return the last visible position in the same pool before this row, or None if there is none."""
    row = first[0]
    before = Q(queue_pool=row.queue_pool, queue_position__lt=row.queue_position)
    rows = queued_workloads(actor, None).order_by().filter(before)
    position: int | None = rows.aggregate(last=Max("queue_position"))["last"]
    return position


def _without_position(count: int, phase: str) -> list[Placeholder]:
    return [Placeholder(phase, is_plural=count > 1, is_phase=True)] if count else []


def _gap(first: int, last: int) -> list[Placeholder]:
    if last < first:
        return []
    position = str(first) if first == last else f"{first}\N{EN DASH}{last}"
    return [Placeholder(position, is_plural=first < last)]
