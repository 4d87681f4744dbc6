"""Items that need the user's attention, shown on the overview."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from django.db.models import Q
from django.urls import reverse

from berth.core.words import format_count, format_gpus
from projects.actor import Actor
from projects.idle_gpus import idle_since
from projects.models import Phase, Workload
from projects.selectors import workloads
from projects.services.workloads.unschedulable import REASON as UNSCHEDULABLE
from scheduler.reports.queues.starved import Shortfall

OWN_MAX, OF_EACH_MAX = 100, 3
UNSCHEDULABLE_MAX = 2  # maximum number of own workloads that are listed individually
RECENTLY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Item:
    """Line with a coloured label, a linked name and a sentence about it. `at` is when it began, if known."""

    label: str
    tone: str
    name: str
    path: str
    text: str
    at: datetime | None = None


def attention_items(
    actor: Actor,
    *,
    shortfalls: Iterable[Shortfall],
    unschedulable: int,
    pools: Collection[str],
    pool: str,
    is_admin: bool,
    now: datetime,
) -> list[Item]:
    """Return the items of a user. Fairness comes first for platform admins, own workloads for the others.

    `unschedulable` counts all visible workloads of the `pools` that can never start, an array once. `pool` is
    the only one of them, or empty.
    """
    own = _own_workloads(actor)
    impossible = list(_unschedulable(own))
    in_pools = [workload for workload in impossible if not set(pools).isdisjoint(workload.pools)]
    if len(in_pools) > UNSCHEDULABLE_MAX:  # similar rows are replaced by their number
        impossible = [workload for workload in impossible if workload not in in_pools]
        in_pools = []
    impossible = impossible[:OF_EACH_MAX]
    listed = sum(workload in impossible for workload in in_pools)
    of_own = [
        *_failed_items(actor, now), *map(_unschedulable_item, impossible),
        *islice(_idle_items(own, now), OF_EACH_MAX),
    ]  # fmt: skip
    of_all = [*_below_share(shortfalls), *_all_unschedulable(unschedulable - listed, pool)]
    return [*of_all, *of_own] if is_admin else [*of_own, *of_all]


def _own_workloads(actor: Actor) -> list[Workload]:
    """Return the user's latest workloads that run or can never start, without array tasks."""
    if actor.user is None:
        return []
    can_need_attention = Q(phase=Phase.RUNNING) | Q(phase=Phase.PENDING, reason=UNSCHEDULABLE)
    rows = workloads(actor).filter(can_need_attention, submitted_by=actor.user, array=None)
    return list(rows.order_by("-submitted_at")[:OWN_MAX])


def _failed_items(actor: Actor, now: datetime) -> Iterator[Item]:
    if actor.user is None:
        return
    rows = workloads(actor).filter(
        submitted_by=actor.user, array=None, phase=Phase.FAILED, ended_at__gte=now - RECENTLY
    )
    latest: dict[tuple[int, str], Workload] = {}
    for workload in rows.order_by("-ended_at")[: OF_EACH_MAX * OF_EACH_MAX]:
        latest.setdefault((workload.project_id, workload.name), workload)
    for workload in islice(latest.values(), OF_EACH_MAX):
        text = f"failed: {workload.message}"
        yield Item("Failed", "bad", workload.name, _workload_path(workload), text, workload.ended_at)


def _unschedulable(own: Sequence[Workload]) -> Iterator[Workload]:
    return (row for row in own if row.phase == Phase.PENDING and row.reason == UNSCHEDULABLE)


def _unschedulable_item(workload: Workload) -> Item:
    text = f"can never start as specified. {workload.message}"
    return Item("Unschedulable", "bad", workload.name, _workload_path(workload), text)


def _idle_items(own: Sequence[Workload], now: datetime) -> Iterator[Item]:
    running = {workload.pk: workload for workload in own if workload.phase == Phase.RUNNING}
    for pk, since in (idle_since(running, now) if running else {}).items():
        workload = running[pk]
        text = f"holds {format_gpus(workload.gpu_milli_now)} without using them."
        yield Item("GPUs idle", "warn", workload.name, _workload_path(workload), text, since)


def _below_share(shortfalls: Iterable[Shortfall]) -> Iterator[Item]:
    for shortfall in shortfalls:
        missing, share = format_gpus(shortfall.below_share), format_gpus(shortfall.share)
        text = f"has {missing} less than its fair share of {share} in pool {shortfall.pool}."
        if borrowers := shortfall.borrowers[:OF_EACH_MAX]:
            over = (f"{each.project} {format_gpus(each.over_quota)}" for each in borrowers)
            text += f" Over quota: {', '.join(over)}."
        path = f"{reverse('workloads')}?project={shortfall.project}&state=pending&pool={shortfall.pool}"
        yield Item("Below fair share", "warn", shortfall.project, path, text)


def _all_unschedulable(count: int, pool: str) -> Iterator[Item]:
    if count > 0:
        path = f"{reverse('workloads')}?state=unschedulable{f'&pool={pool}' if pool else ''}"
        text = "can never start as specified."
        yield Item("Unschedulable", "warn", format_count(count, "pending workload"), path, text)


def _workload_path(workload: Workload) -> str:
    return reverse("workload", args=[workload.pk])
