"""Quota, fair share, allocation and requests of departments and projects."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from django.db.models import Q

from berth.core.values.amounts import sum_bounds
from berth.server.web.charts.bars import Bar, bar_scale, quota_bar, tight_bar_scale
from berth.server.web.charts.hues import project_hue
from berth.server.web.numbers import thousandths
from pools.models import NodePool, QuotaGroup
from projects.access import fully_visible_departments
from projects.actor import Actor
from projects.models import Quota
from projects.models.tenants import PoolOrGroup, Tenant, applies_to_any
from projects.selectors import departments, projects, quotas
from scheduler.reports.queues.group_quotas import (
    AllocatedOutside,
    allocated_amounts_in_other_pools,
    quota_owner,
)
from scheduler.reports.queues.pending_gpus import pending_gpus_by_project
from scheduler.reports.queues.queue_totals import GPU, Owner, totals_by_queue
from scheduler.reports.selectors import queue_statuses

POOL_BARS_MAX = 3
Key = tuple[str, int]  # kind of owner ("department" or "project") and its ID


@dataclass(frozen=True, slots=True)
class PoolBar:
    """Allocated and reserved GPUs of a queue in one pool, with marks at the queue's quota and fair share.

    `share` is None if the fair share is unknown or the queue requests nothing in the pool.
    """

    pool: str
    held: int
    quota: int
    share: int | None
    bar: Bar

    @property
    def is_over(self) -> bool:
        return self.held > self.quota

    @property
    def difference(self) -> int:
        """Milli-GPU by which the allocation differs from the quota, in either direction."""
        return abs(self.held - self.quota)


@dataclass
class QuotaLine:
    """Row of a queue for one or more pools, in milli-GPU. None means an unlimited quota."""

    owner: Tenant
    quotas: list[Quota] = field(default_factory=list)
    share_by_pool: dict[int, int] = field(default_factory=dict)  # fair shares by pool ID, if known
    allocated: int = 0
    reserved: int = 0
    pending: int = 0
    numbers_visible: bool = True  # False if a department's own numbers are hidden
    children: list["QuotaLine"] = field(default_factory=list)
    scale: int = 0  # amount that a full-width bar represents
    elsewhere: int = 0  # amount allocated in other pools of the quota group
    by_pool: dict[int, int] = field(default_factory=dict)  # allocated and reserved amounts by pool ID
    reserved_by_pool: dict[int, int] = field(default_factory=dict)

    @cached_property
    def bar(self) -> Bar:
        return quota_bar(
            allocated=self.allocated,
            reserved=self.reserved,
            quota=self.gpus,
            share=self.share,
            requested=self.pending,
            over=self.over_quota,
            scale=self.scale,
            label=_bar_label(self),
        )

    @cached_property
    def allocation_bar(self) -> Bar:
        """Bar of allocated and reserved GPUs, with marks at the total quota and fair share in the displayed
        pools.
        """
        is_within = self.unused_quota_elsewhere is None or self.gpus is None or self.held <= self.gpus
        return quota_bar(
            allocated=self.allocated,
            reserved=self.reserved,
            quota=self.gpus if is_within else None,
            share=self.share or None,
            requested=0,
            over=self.over_quota,
            scale=self.scale,
            label=_bar_label(self),
        )

    @property
    def pool_bars(self) -> list[PoolBar]:
        """One bar per pool of a queue that is over quota in some pools and has unused quota in others.

        The list is empty for all other queues.
        """
        with_quota = {quota.pool_id for quota in self.quotas if quota.gpu_milli}
        is_complete = self._over_quota_by_pool.keys() <= with_quota
        if self.unused_quota_elsewhere is None or len(self.quotas) > POOL_BARS_MAX or not is_complete:
            return []
        bars = []
        for quota in self.quotas:
            if quota.pool is None or not quota.gpu_milli:
                continue
            held, reserved = (
                amounts.get(quota.pool.pk, 0) for amounts in (self.by_pool, self.reserved_by_pool)
            )
            share = self.share_by_pool.get(quota.pool.pk) or None
            words = f"{thousandths(held)} of quota {thousandths(quota.gpu_milli)}"
            words += f", fair share {thousandths(share)}" if share else ""
            bar = quota_bar(
                allocated=held - reserved,
                reserved=reserved,
                quota=quota.gpu_milli,
                share=share,
                requested=0,
                scale=self.scale,
                label=f"{self.owner}: {words} in {quota.pool.name}",
            )
            bars.append(PoolBar(quota.pool.name, held, quota.gpu_milli, share, bar))
        return sorted(bars, key=lambda each: (not each.is_over, each.pool))

    @property
    def overview_length(self) -> int:
        """Largest amount that the row's bars on the overview show."""
        lengths = [max(each.held, each.quota, each.share or 0) for each in self.pool_bars]
        return max(lengths or [self.held, self.gpus or 0, self.share or 0])

    @property
    def overview_bars(self) -> list[Bar]:
        """Bars that the overview shows for this row: one per pool, or one for all pools."""
        return [each.bar for each in self.pool_bars] or [self.allocation_bar]

    @property
    def hue(self) -> str:
        """Colour of the project in device maps."""
        return project_hue(self.owner.pk)

    @property
    def share(self) -> int | None:
        """Fair share in all shown pools, or None if it is unknown."""
        return sum(self.share_by_pool.values()) if self.share_by_pool else None

    @property
    def held(self) -> int:
        """Allocated and reserved GPUs, which both count towards quota and fair share."""
        return self.allocated + self.reserved

    @property
    def quota(self) -> Quota | None:
        return self.quotas[0] if len(self.quotas) == 1 else None

    @property
    def group_name(self) -> str:
        """Name of the quota group, or an empty string."""
        return self.quota.group.name if self.quota is not None and self.quota.group is not None else ""

    @property
    def gpus(self) -> int | None:
        """Total GPU quota, or None if any of the quotas is unlimited."""
        total = sum_bounds(quota.gpu_milli for quota in self.quotas)
        return total if total is None else max(0, total - self.elsewhere)

    @property
    def limit(self) -> int | None:
        return sum_bounds(quota.limit_gpu_milli for quota in self.quotas) if self.quotas else None

    @property
    def over_quota(self) -> int:
        """Amount over quota, summed over pools. Unused quota in one pool does not cover another pool."""
        if any(quota.group_id is not None for quota in self.quotas):
            return max(0, self.held - self.gpus) if self.gpus is not None else 0
        return sum(self._over_quota_by_pool.values())

    @property
    def over_quota_pool(self) -> str:
        """Name of the pool where the queue is over quota, or "" if there is no such pool or more than one."""
        names = [
            quota.pool.name
            for quota in self.quotas
            if quota.pool and self._over_quota_by_pool.get(quota.pool.pk)
        ]
        return names[0] if len(names) == len(self._over_quota_by_pool) == 1 else ""

    @property
    def unused_quota_elsewhere(self) -> tuple[int, str] | None:
        """Unused quota in milli-GPU and the name of its pool, if the queue is over quota in a different pool.

        If several pools have unused quota, the name is text such as "2 pools".
        """
        if not self.over_quota or self.gpus is None or any(quota.group_id for quota in self.quotas):
            return None
        unused = {
            quota.pool.name: quota.gpu_milli - self.by_pool.get(quota.pool.pk, 0)
            for quota in self.quotas
            if quota.pool and quota.gpu_milli is not None
        }
        unused = {name: milli for name, milli in unused.items() if milli > 0}
        if not unused:
            return None
        return sum(unused.values()), next(iter(unused)) if len(unused) == 1 else f"{len(unused)} pools"

    @cached_property
    def _over_quota_by_pool(self) -> dict[int, int]:
        quotas = {quota.pool_id: quota.gpu_milli for quota in self.quotas}
        over = {}
        for pool, held in self.by_pool.items():
            quota = quotas.get(pool, 0)
            if quota is not None and held > quota:
                over[pool] = held - quota
        return over

    @property
    def quota_sum(self) -> int | None:
        """Sum of the department's project quotas, or None if any of them is unlimited."""
        return sum_bounds(child.gpus for child in self.children)

    @property
    def unassigned(self) -> int:
        """Part of a department's quota that is not assigned to any project. It is 0 if unknown or
        unlimited.
        """
        if not self.numbers_visible or self.gpus is None or self.quota_sum is None:
            return 0
        return max(0, self.gpus - self.quota_sum)

    @property
    def is_share_limited_by_request(self) -> bool:
        """Whether the fair share is below the quota because the queue requests no more."""
        if self.share is None or (self.gpus is not None and self.share >= self.gpus):
            return False
        return self.share >= self.held + self.pending

    @property
    def is_oversubscribed(self) -> bool:
        return (
            self.numbers_visible
            and self.gpus is not None
            and (self.quota_sum is None or self.quota_sum > self.gpus)
        )


def quota_lines(actor: Actor, pools: Iterable[NodePool], place: PoolOrGroup | None = None) -> list[QuotaLine]:
    """Return the departments, sorted by name, with their visible projects.

    If `place` is a quota group, only the group's own quotas are returned.
    """
    selected_pools = list(pools)
    only = Q(group=place) if isinstance(place, QuotaGroup) else applies_to_any(selected_pools)
    outside = allocated_amounts_in_other_pools(selected_pools)
    whole = set(fully_visible_departments(actor).values_list("pk", flat=True))
    owned = _quotas_by_owner(actor, only)
    shares = _shares_by_owner(actor, selected_pools)
    pending = pending_gpus_by_project(selected_pools, can_start=True)
    tops = {
        department.pk: QuotaLine(
            department,
            owned[("department", department.pk)],
            shares[("department", department.pk)],
            numbers_visible=department.pk in whole,
        )
        for department in departments(actor)
    }
    lines: dict[Owner, QuotaLine] = {(pk, None): top for pk, top in tops.items()}
    for project in projects(actor).select_related(None):
        key = ("project", project.pk)
        child = QuotaLine(project, owned[key], shares[key], pending=pending.get(project.pk, 0))
        lines[None, project.pk] = child
        top = tops[project.department_id]
        top.children.append(child)
        top.pending += child.pending
    for (pool, owner), totals in totals_by_queue(selected_pools).items():
        if (line := lines.get(owner)) is not None:
            line.allocated += totals.allocated[GPU]
            line.reserved += totals.reserved[GPU]
            line.by_pool[pool] = totals.allocated[GPU] + totals.reserved[GPU]
            line.reserved_by_pool[pool] = totals.reserved[GPU]
    result = list(tops.values())
    for line in [*result, *(child for top in result for child in top.children)] if outside else ():
        line.elsewhere = sum(_allocated_gpus_outside_pools(quota, outside) for quota in line.quotas)
    for level in (result, [child for top in result for child in top.children]):
        set_common_scale(level)
    return result


def _allocated_gpus_outside_pools(quota: Quota, outside: AllocatedOutside) -> int:
    return outside.get((quota.group_id or 0, quota_owner(quota)), (0,))[0]


def _quotas_by_owner(actor: Actor, which: Q) -> dict[Key, list[Quota]]:
    result: dict[Key, list[Quota]] = defaultdict(list)
    # Most quotas share a few pools, so joining them to each row would take longer than a second query.
    rows = quotas(actor).filter(which).select_related(None).prefetch_related("group", "pool")
    for quota in rows.order_by("pool__name", "group__name"):
        result[_owner_key(quota.project_id, quota.department_id)].append(quota)
    return result


def _shares_by_owner(actor: Actor, pools: list[NodePool]) -> dict[Key, dict[int, int]]:
    """Return the known fair shares in milli-GPU, keyed by owner and then by pool ID."""
    result: dict[Key, dict[int, int]] = defaultdict(dict)
    rows = queue_statuses(actor).filter(pool__in=pools)
    for project, department, pool, share in rows.values_list(
        "project_id", "department_id", "pool_id", "share"
    ):
        result[_owner_key(project, department)][pool] = share[0]
    return result


def _owner_key(project: int | None, department: int | None) -> Key:
    if project is not None:
        return "project", project
    assert department is not None, "the database guarantees that there is one owner"
    return "department", department


def set_common_scale(lines: Sequence[QuotaLine]) -> None:
    """Give the rows' bars the same scale, so that they are comparable."""
    visible = [line for line in lines if line.numbers_visible]
    ends = [max(line.gpus or 0, line.share or 0, line.held) for line in visible]
    scale = bar_scale(max(ends, default=0)) or max((line.pending for line in visible), default=0)
    for line in lines:
        line.scale = scale


def set_overview_scale(lines: Sequence[QuotaLine]) -> None:
    """Give all bars of the overview the same scale, which is as short as possible.

    The scale need not include pending GPUs, because these bars do not show them.
    """
    longest = max((line.overview_length for line in lines if line.numbers_visible), default=0)
    for line in lines:
        line.scale = tight_bar_scale(longest) or line.scale


def _bar_label(line: QuotaLine) -> str:
    share = "" if line.share is None else f", fair share {thousandths(line.share)}"
    reserved = f", {thousandths(line.reserved)} reserved" if line.reserved else ""
    pending = f", {thousandths(line.pending)} pending" if line.pending else ""
    quota = f"quota {thousandths(line.gpus)}"
    return f"{line.owner}: {thousandths(line.allocated)} GPUs allocated of {quota}{reserved}{share}{pending}"
