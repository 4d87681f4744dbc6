"""Items that need the user's attention, shown on the overview."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Sum
from django.urls import reverse

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count, format_gpus
from berth.db.queries.first_rows import first_rows
from berth.server.web.overview.items import AttentionItem
from berth.server.web.overview.service_items import degraded_service_items
from pools.models import NodePool
from projects.access import Action, may
from projects.actor import Actor
from projects.models import ArrayState, BudgetWarning, Delivery, Event, Phase, Workload, WorkloadArray
from projects.queries.idle_gpus import idle_since
from projects.queries.services import services
from projects.selectors import budgets, workload_count, workloads
from projects.services.arrays import failure_sentence, failures_by_array
from projects.services.workloads import RESUBMITTED_EVENT
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from projects.web.workloads.failed_pods import load_log_urls
from projects.web.workloads.listing.filters import failed_since_condition
from scheduler.reports.pool_diagnosis import RECONCILER, find_pool_errors
from scheduler.reports.queues.starved import Shortfall
from scheduler.reports.usage.budgets import FULL_PERCENT, budget_statuses

OWN_MAX, OF_EACH_MAX = 100, 3
UNSCHEDULABLE_MAX = 2  # maximum number of the user's workloads that are listed individually
DELIVERIES_MAX = 1000  # maximum number of recent deliveries that are read
RECENTLY = timedelta(days=1)
IDLE_MAX = 1000  # maximum number of other users' running workloads checked for idle GPUs
SHORTFALLS_MAX = 5
SHORTFALL_MIN = timedelta(minutes=5)  # pending time after which a queue below its fair share needs attention


def attention_items(
    actor: Actor,
    *,
    shortfalls: Sequence[Shortfall],
    unschedulable: int,
    pools: Sequence[NodePool],
    pool: str,
    is_admin: bool,
    no_scheduler: bool,
    now: datetime,
) -> list[AttentionItem]:
    """Return the items that need the user's attention, with faults before warnings.

    Platform admins see platform items first, whereas other users see their own workloads first.
    `unschedulable` is the number of visible workloads and arrays that can never start. `pool` is the name of
    the only pool, or empty if there are several. With `no_scheduler`, pool errors that result from the
    missing scheduler are omitted.
    """
    own = _own_workloads(actor)
    impossible = list(_select_unschedulable(own))
    names = {each.name for each in pools}
    in_pools = [workload for workload in impossible if not names.isdisjoint(workload.pools)]
    if len(in_pools) > UNSCHEDULABLE_MAX:  # show a count instead of so many similar rows
        impossible = [workload for workload in impossible if workload not in in_pools]
        in_pools = []
    impossible = impossible[:OF_EACH_MAX]
    listed = sum(workload in impossible for workload in in_pools)
    failed = _failed_items(actor, names if is_admin else None, pool, now)
    of_own = [
        *failed, *map(_unschedulable_item, impossible), *islice(_idle_items(own, now), OF_EACH_MAX),
    ]  # fmt: skip
    checked = services(actor).filter(
        Q(workload__pool__in=pools) if is_admin else Q(workload__submitted_by=actor.user)
    )
    degraded = list(islice(degraded_service_items(checked, now), OF_EACH_MAX))
    persistent = islice(_persistent_shortfalls(actor, shortfalls, now), SHORTFALLS_MAX)
    below_share = _items_below_share(actor, persistent)
    of_all = [*below_share, *_unlisted_unschedulable_items(unschedulable - listed, pool)]
    items = [*of_own, *degraded, *of_all]
    if is_admin:
        exceeded = _exceeded_budget_items(actor, pool, now)
        of_platform = [*_pool_error_items(pools, no_scheduler, now), *exceeded]
        items = [
            *of_platform, *of_all, *degraded, *_failed_delivery_items(pool, now), *of_own,
            *_platform_idle_items(actor, pools, pool, now),
        ]  # fmt: skip
    return sorted(items, key=lambda item: item.tone != "bad")


def _own_workloads(actor: Actor) -> list[Workload]:
    """Return the user's latest running and unschedulable workloads.

    An array is shown as its first unschedulable task.
    """
    if actor.user is None:
        return []
    impossible = Q(phase=Phase.PENDING, reason=UNSCHEDULABLE)
    own = workloads(actor).filter(submitted_by=actor.user)
    tasks = own.filter(impossible, array__isnull=False).order_by("array_id", "array_index")
    rows = own.filter(
        Q(Q(phase=Phase.RUNNING) | impossible, array=None) | Q(pk__in=tasks.distinct("array_id").values("pk"))
    )
    return list(first_rows(rows.select_related("array").order_by("-submitted_at"), OWN_MAX))


def _failed_items(
    actor: Actor, pools: Collection[str] | None, pool: str, now: datetime
) -> list[AttentionItem]:
    """Return the workloads and arrays that failed in the last day and were not resubmitted.

    With `pools`, return all visible ones in these pools, otherwise only the user's own. If there are too
    many, add an item that links to all of them.
    """
    if actor.user is None:
        return []
    of_scope = Q(submitted_by=actor.user) if pools is None else Q(pools__overlap=[*pools])
    visible = workloads(actor).filter(of_scope)
    rows = visible.filter(phase=Phase.FAILED, superseded=False, ended_at__gte=now - RECENTLY)
    single = rows.filter(array=None).order_by("project_id", "name", "-ended_at")
    latest = single.distinct("project_id", "name").values("pk")
    resubmitted = Event.objects.filter(workload_id=OuterRef("pk"), kind=RESUBMITTED_EVENT)
    newest = visible.filter(~Exists(resubmitted), pk__in=latest).order_by("-ended_at")[: OF_EACH_MAX + 1]
    items = [*map(_failed_item, newest), *_failed_array_items(rows.filter(array__isnull=False))]
    items.sort(key=lambda item: item.at or now, reverse=True)
    listed = items[:OF_EACH_MAX]
    logs = load_log_urls(item.failed for item in listed if item.failed)
    result = [replace(item, log=logs.get(item.failed.pk, "")) if item.failed else item for item in listed]
    if len(items) > OF_EACH_MAX:
        total = (
            visible.filter(failed_since_condition(now - RECENTLY))
            .order_by()
            .aggregate(n=workload_count())["n"]
        )
        if further := total - sum(item.is_failed for item in listed):
            scope = "&mine=1" if pools is None else f"&pool={pool}" if pool else ""
            path = f"{reverse('workloads')}?state=failed&ended=24h{scope}"
            name = format_count(further, "more workload")
            result.append(AttentionItem("Failed", "bad", name, path, "Failed in the last 24 hours."))
    return result


def _failed_item(workload: Workload) -> AttentionItem:
    return AttentionItem(
        "Failed", "bad", workload.handle, _workload_path(workload), workload.message, workload.ended_at,
        failed=workload, is_failed=True,
    )  # fmt: skip


def _failed_array_items(tasks: QuerySet[Workload]) -> list[AttentionItem]:
    """Return an item for each array with failed tasks.

    If several arrays have the same name, only the latest has an item.
    """
    ordered = tasks.order_by("project_id", "array__name", "-ended_at")
    of_names = Workload.objects.filter(pk__in=ordered.distinct("project_id", "array__name").values("pk"))
    last_tasks = of_names.order_by("-ended_at")[: OF_EACH_MAX + 1]
    if not (latest := {task.array_id: task for task in last_tasks if task.array_id is not None}):
        return []
    rows = WorkloadArray.objects.select_related("project").in_bulk(latest)
    failures = failures_by_array(latest)
    return [
        AttentionItem(
            "Tasks failed" if rows[pk].state == ArrayState.ACTIVE else "Failed", "bad", rows[pk].handle,
            reverse("array", args=[pk]), f"{failure_sentence(failures[pk], rows[pk].task_count)}.",
            task.ended_at, failed=task, is_failed=rows[pk].state == ArrayState.FAILED,
        )
        for pk, task in latest.items()
        if pk in rows and pk in failures  # skip arrays that were just deleted or retried
    ]  # fmt: skip


def _select_unschedulable(own: Sequence[Workload]) -> Iterator[Workload]:
    return (row for row in own if row.phase == Phase.PENDING and row.reason == UNSCHEDULABLE)


def _unschedulable_item(workload: Workload) -> AttentionItem:
    text, since = f"Can never start as specified. {workload.message}", workload.pending_since
    if workload.array is not None:
        path = reverse("array", args=[workload.array.pk])
        return AttentionItem(
            "Unschedulable", "bad", f"{workload.project.name}/{workload.array.name}", path, text, since
        )
    return AttentionItem("Unschedulable", "bad", workload.handle, _workload_path(workload), text, since)


def _idle_items(own: Sequence[Workload], now: datetime) -> Iterator[AttentionItem]:
    running = {workload.pk: workload for workload in own if workload.phase == Phase.RUNNING}
    for pk, since in (idle_since(running, now) if running else {}).items():
        workload = running[pk]
        yield AttentionItem(
            "GPUs idle", "warn", workload.handle, _workload_path(workload),
            _idle_sentence(workload.gpu_milli_now), since,
        )  # fmt: skip


def _idle_sentence(gpu_milli: int) -> str:
    verb = "is" if gpu_milli == MILLI else "are"
    return f"{format_gpus(gpu_milli)} {verb} allocated but not used."


def _platform_idle_items(
    actor: Actor, pools: Sequence[NodePool], pool: str, now: datetime
) -> Iterator[AttentionItem]:
    """Yield an item about other users' workloads with idle GPUs."""
    rows = workloads(actor).filter(phase=Phase.RUNNING, pool__in=pools, gpu_milli_now__gt=0)
    if actor.user is not None:
        rows = rows.exclude(submitted_by=actor.user)
    running = {row.pk: row for row in rows.order_by("-gpu_milli_now", "pk")[:IDLE_MAX]}
    since = idle_since(running, now) if running else {}
    if not since:
        return
    text = _idle_sentence(sum(running[pk].gpu_milli_now for pk in since))
    if len(since) == 1:
        ((pk, at),) = since.items()
        yield AttentionItem("GPUs idle", "warn", running[pk].handle, _workload_path(running[pk]), text, at)
    else:
        path = f"{reverse('workloads')}?state=running&sort=-gpus{f'&pool={pool}' if pool else ''}"
        name = format_count(len(since), "workload")
        yield AttentionItem("GPUs idle", "warn", name, path, text, min(since.values()))


@dataclass(frozen=True, slots=True)
class _PendingDemand:
    """Demand of a project's pending workloads in one pool.

    `since` is the time at which the first of these workloads became pending.
    """

    since: datetime
    smallest: int  # smallest request in milli-GPU
    total: int  # total request in milli-GPU


def _persistent_shortfalls(
    actor: Actor, shortfalls: Sequence[Shortfall], now: datetime
) -> Iterator[tuple[Shortfall, _PendingDemand | None]]:
    """Yield the shortfalls that have lasted for some minutes, with the demand of their pending workloads.

    Newer shortfalls are omitted, because they often disappear in the next cycles. Elastic workloads can be
    short of GPUs without any pending workload.
    """
    if not shortfalls:
        return
    demand = _demand_by_queue(actor, {each.project for each in shortfalls})
    for shortfall in shortfalls:
        pending = demand.get((shortfall.project, shortfall.pool))
        if pending is None or pending.since <= now - SHORTFALL_MIN:
            yield shortfall, pending


def _demand_by_queue(actor: Actor, projects: Iterable[str]) -> dict[tuple[str, str], _PendingDemand]:
    """Return the demand of pending workloads that can start, keyed by (project, pool)."""
    sums = (
        _pending_workloads(actor)
        .filter(project__name__any=projects)
        .order_by()
        .values_list("project__name", "pools")
    )
    result: dict[tuple[str, str], _PendingDemand] = {}
    for project, pools, since, smallest, total in sums.annotate(
        Min("since"), Min("gpu_milli_min"), Sum("gpu_milli_min")
    ):
        for pool in pools:
            other = result.get((project, pool), _PendingDemand(since, smallest, 0))
            result[project, pool] = _PendingDemand(
                min(since, other.since), min(smallest, other.smallest), total + other.total
            )
    return result


def _pending_workloads(actor: Actor) -> QuerySet[Workload]:
    return workloads(actor).filter(phase=Phase.PENDING, held=False).exclude(reason=UNSCHEDULABLE)


def _items_below_share(
    actor: Actor, shortfalls: Iterable[tuple[Shortfall, _PendingDemand | None]]
) -> Iterator[AttentionItem]:
    for shortfall, pending in shortfalls:
        if pending and _exceeds_share(shortfall, pending):
            yield from _oversized_workload_items(actor, shortfall, pending.smallest)
            continue
        missing, share = format_gpus(shortfall.below_share), format_gpus(shortfall.share)
        text = f"{missing} below its fair share of {share} in {shortfall.pool}."
        if borrowers := shortfall.borrowers[:OF_EACH_MAX]:
            over = (f"{each.project} {format_gpus(each.over_quota)}" for each in borrowers)
            text += f" Over quota: {', '.join(over)}."
        path = f"{reverse('workloads')}?project={shortfall.project}&state=pending&pool={shortfall.pool}"
        since = pending.since if pending else None
        yield AttentionItem("Below fair share", "warn", shortfall.project, path, text, since)


def _exceeds_share(shortfall: Shortfall, pending: _PendingDemand) -> bool:
    """Return whether even the smallest pending workload would take the project over its fair share.

    The result is False if a workload is waiting to scale up.
    """
    is_growing = shortfall.requested - shortfall.held > pending.total
    return pending.smallest > shortfall.below_share and not is_growing


def _oversized_workload_items(actor: Actor, shortfall: Shortfall, smallest: int) -> Iterator[AttentionItem]:
    """Yield an item for the smallest pending workload, unless that is expected to start."""
    rows = _pending_workloads(actor).filter(
        project__name=shortfall.project, pools__contains=[shortfall.pool], gpu_milli_min=smallest
    )
    workload = rows.select_related("array", "project").order_by("since", "pk").first()
    if workload is None or (workload.explanation or {}).get("expected_start"):
        return  # the workload has started by now, or will start without a change
    name, path, per_task = workload.handle, _workload_path(workload), ""
    if workload.array is not None:
        name, path, per_task = (
            f"{workload.project.name}/{workload.array.name}",
            reverse("array", args=[workload.array.pk]),
            " per task",
        )
    elif may(actor, Action.OPERATE, workload):
        path = reverse("review-change", args=[workload.pk])
    left, requested = format_gpus(shortfall.below_share), f"{format_gpus(smallest)}{per_task}"
    text = (
        f"Requests {requested}, but {shortfall.project} has {left} left of its fair share in "
        f"{shortfall.pool}. No start is expected. A request of up to {left} would stay within the share."
    )
    yield AttentionItem("Exceeds fair share", "warn", name, path, text, workload.pending_since)


def _unlisted_unschedulable_items(count: int, pool: str) -> Iterator[AttentionItem]:
    if count > 0:
        path = f"{reverse('workloads')}?state=unschedulable{f'&pool={pool}' if pool else ''}"
        text = "Can never start as specified."
        yield AttentionItem("Unschedulable", "bad", format_count(count, "pending workload"), path, text)


def _pool_error_items(
    pools: Iterable[NodePool], no_scheduler: bool, now: datetime
) -> Iterator[AttentionItem]:
    for pool in pools:
        for error in find_pool_errors(pool, now):
            if not (no_scheduler and error.name == RECONCILER):
                path = reverse("node-pool", args=[pool.name])
                yield AttentionItem("Pool error", "bad", pool.name, path, error.finding)


def _exceeded_budget_items(actor: Actor, pool: str, now: datetime) -> Iterator[AttentionItem]:
    """Yield an item for each budget that has been exceeded this month."""
    warnings = BudgetWarning.objects.filter(month=now.astimezone(UTC).date().replace(day=1), percent__gte=100)
    exceeded_at = dict(warnings.order_by().values_list("budget").annotate(Min("at")))
    suspects = budgets(actor).filter(pk__in=exceeded_at)
    for status in islice(budget_statuses(list(suspects), now), OF_EACH_MAX):
        if status.percent > FULL_PERCENT:
            text = (
                f"{status.used:,.0f} GPU-hours used this month, {status.percent:.0f}% of the budget of "
                f"{status.budget.gpu_hours:,}{' for all pools' if pool else ''}."
            )
            yield AttentionItem(
                "Over budget", "bad", status.budget.owner.name, f"{reverse('usage')}#budgets", text,
                exceeded_at[status.budget.pk],
            )  # fmt: skip


def _failed_delivery_items(pool: str, now: datetime) -> Iterator[AttentionItem]:
    """Yield an item about the notifications that could not be delivered in the last day."""
    latest = Delivery.objects.order_by("-id").values("pk")[:DELIVERIES_MAX]
    failed = Delivery.objects.filter(pk__in=latest, state=Delivery.State.FAILED, ended_at__gte=now - RECENTLY)
    totals = failed.order_by().aggregate(n=Count("pk"), at=Max("ended_at"))
    if totals["n"]:
        scope = " about all pools" if pool else ""
        text = f"{totals['n']:,}{scope} could not be delivered in the last 24 hours."
        yield AttentionItem(
            "Not delivered", "warn", "Notifications", f"{reverse('notifications')}#log", text, totals["at"]
        )


def _workload_path(workload: Workload) -> str:
    return reverse("workload", args=[workload.pk])
