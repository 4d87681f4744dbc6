"""Departments and projects side by side: quota, fair share, allocated and requested."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from django.db.models import F, Func, IntegerField, Sum

from berth.server.web.charts.bars import Bar, quota_bar
from berth.server.web.numbers import thousandths
from pools.models import NodePool
from projects.access import whole_departments
from projects.acting import Acting
from projects.models import Department, Phase, Project, Quota, Workload
from projects.selectors import departments, projects, quotas
from scheduler.models import Allocation
from scheduler.reports.selectors import standings

Owner = Department | Project
Key = tuple[str, int]  # ("department" | "project", id)


@dataclass
class Line:
    """One queue in one or several pools, in milli-GPU. A quota of None is unlimited."""

    owner: Owner
    quotas: list[Quota] = field(default_factory=list)
    share: int | None = None
    allocated: int = 0
    waiting: int = 0
    numbers_visible: bool = True  # False if the user may not see a department's own numbers
    children: list["Line"] = field(default_factory=list)
    scale: int = 0  # value at the end of the longest bar

    @cached_property
    def bar(self) -> Bar:
        return quota_bar(
            allocated=self.allocated,
            quota=self.gpus,
            share=self.share,
            wanted=self.waiting,
            scale=self.scale,
            label=_label(self),
        )

    @property
    def quota(self) -> Quota | None:
        return self.quotas[0] if len(self.quotas) == 1 else None

    @property
    def gpus(self) -> int | None:
        """GPU quota; None if one of the quotas is unlimited."""
        return _sum_or_none(quota.gpu_milli for quota in self.quotas)

    @property
    def limit(self) -> int | None:
        return _sum_or_none(quota.limit_gpu_milli for quota in self.quotas) if self.quotas else None

    @property
    def beyond(self) -> int:
        return max(0, self.allocated - self.gpus) if self.gpus is not None else 0

    @property
    def promised(self) -> int | None:
        """Sum of the department's project quotas."""
        return _sum_or_none(child.gpus for child in self.children)

    @property
    def oversold(self) -> bool:
        return (
            self.numbers_visible
            and self.gpus is not None
            and (self.promised is None or self.promised > self.gpus)
        )


def lines(acting: Acting, pools: Iterable[NodePool]) -> list[Line]:
    """Return departments by name with their visible projects."""
    wanted = list(pools)
    whole = set(whole_departments(acting).values_list("pk", flat=True))
    owned = _quotas(acting, wanted)
    shares = _shares(acting, wanted)
    held, waiting = held_by_project(wanted), waiting_by_project(wanted)
    tops = {
        each.pk: Line(
            each,
            owned[("department", each.pk)],
            shares.get(("department", each.pk)),
            numbers_visible=each.pk in whole,
        )
        for each in departments(acting)
    }
    for project in projects(acting).select_related(None):
        key = ("project", project.pk)
        child = Line(
            project, owned[key], shares.get(key), held.get(project.pk, 0), waiting.get(project.pk, 0)
        )
        top = tops[project.department_id]
        top.children.append(child)
        top.allocated += child.allocated
        top.waiting += child.waiting
    result = list(tops.values())
    _scale(result)
    return result


def held_by_project(pools: list[NodePool]) -> dict[int, int]:
    """Return milli-GPU allocated to each project."""
    rows = (
        Allocation.objects.filter(released_at__isnull=True, node__pool__in=pools)
        .order_by()
        .values_list("pod__workload__project_id")
        .annotate(
            held=Sum(F("gpu_milli") * Func("devices", function="cardinality", output_field=IntegerField()))
        )
    )
    return {project: held or 0 for project, held in rows}


def waiting_by_project(pools: list[NodePool]) -> dict[int, int]:
    """Return pending milli-GPU by project, for workloads that allow one of these pools."""
    rows = (
        Workload.objects.filter(
            phase__in=(Phase.PENDING, Phase.RESERVED), pools__overlap=[pool.name for pool in pools]
        )
        .order_by()
        .values_list("project_id")
        .annotate(requested=Sum("gpu_milli_min"))
    )
    return dict(rows)


def _quotas(acting: Acting, pools: list[NodePool]) -> dict[Key, list[Quota]]:
    result: dict[Key, list[Quota]] = defaultdict(list)
    for quota in quotas(acting).filter(pool__in=pools).select_related(None):
        result[_key(quota.project_id, quota.department_id)].append(quota)
    return result


def _shares(acting: Acting, pools: list[NodePool]) -> dict[Key, int]:
    result: dict[Key, int] = defaultdict(int)
    rows = standings(acting).filter(pool__in=pools).values_list("project_id", "department_id", "share")
    for project, department, share in rows:
        result[_key(project, department)] += share[0]
    return result


def _key(project: int | None, department: int | None) -> Key:
    if project is not None:
        return "project", project
    assert department is not None, "the database guarantees that there is one owner"
    return "department", department


def _scale(tops: list[Line]) -> None:
    """Use one scale for all projects and one for all departments, so that bars are comparable."""
    for row in (tops, [child for top in tops for child in top.children]):
        ends = [max(line.gpus or 0, line.share or 0, line.allocated + line.waiting) for line in row]
        longest = max(ends, default=0)
        for line in row:
            line.scale = longest


def _label(line: Line) -> str:
    share = "" if line.share is None else f", fair share {thousandths(line.share)}"
    waiting = f", {thousandths(line.waiting)} pending" if line.waiting else ""
    return (
        f"{line.owner}: {thousandths(line.allocated)} GPUs of quota {thousandths(line.gpus)}{share}{waiting}"
    )


def _sum_or_none(amounts: Iterable[int | None]) -> int | None:
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
