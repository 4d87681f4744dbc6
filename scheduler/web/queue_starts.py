"""Show on the queue page which workloads must end before others are expected to start."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, Sum, Window
from django.db.models.functions import Coalesce, RowNumber
from django.urls import reverse

from berth.core.wording.awaited import MAX_NAMED
from berth.core.wording.words import join_words
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.models import Phase, Workload
from projects.selectors import workloads
from scheduler.reports.explanations.workload import expected_start_after
from scheduler.reports.queues.unknown_start import UNDECLARED
from scheduler.reports.visibility import HIDDEN_WORKLOAD, viewer_for
from scheduler.web.queue_rows import QueueEntry
from scheduler.web.workloads.pending.change_link import link_names, workload_urls

NAMED_PER_POOL = 5  # maximum number of workloads without a maximum runtime that are named per pool


def load_awaited_ends(actor: Actor, entries: Sequence[QueueEntry]) -> None:
    """Set `starts_after` of each row: the workloads that must end before its expected start, with links."""
    viewer = viewer_for(actor)
    awaited = [
        [end.workload for end in expected_start_after(viewer, row.explanation or {}, starts)][-MAX_NAMED:]
        for row, starts, *_ in entries
    ]
    urls = workload_urls(actor, {name for names in awaited for name in names if name != HIDDEN_WORKLOAD})
    for (row, *_), names in zip(entries, awaited, strict=True):
        row.starts_after = link_names(join_words(list(dict.fromkeys(names))), urls)


@dataclass(frozen=True, slots=True)
class WorkloadsWithoutMaxRuntime:
    """Running workloads in one pool that have no maximum runtime. An array counts as one workload."""

    named: Sequence[tuple[str, str]] = ()  # names and URLs of the largest workloads that the user may see
    count: int = 0  # number of workloads that the user may see
    has_hidden: bool = False

    @property
    def unnamed_count(self) -> int:
        return self.count - len(self.named)


def load_workloads_without_max_runtime(actor: Actor, entries: Sequence[QueueEntry]) -> None:
    """Set `without_max_runtime` of each row: the running workloads that make its expected start unknown."""
    pools = set()
    for row, *_ in entries:
        row.without_max_runtime = WorkloadsWithoutMaxRuntime()
        if str((row.explanation or {}).get("expected_start_reason") or "").startswith(UNDECLARED):
            pools.add(row.queue_pool)
    if not pools:
        return
    without_max_runtime = _workloads_without_max_runtime(actor, pools)
    for row, *_ in entries:
        row.without_max_runtime = without_max_runtime.get(row.queue_pool, row.without_max_runtime)


def _workloads_without_max_runtime(
    actor: Actor, pools: Collection[str]
) -> Mapping[str, WorkloadsWithoutMaxRuntime]:
    running = Q(phase=Phase.RUNNING, pool__name__in=pools, max_runtime=None, gpu_milli_now__gt=0)
    rows = (
        workloads(actor)
        .filter(running)
        .order_by()
        .values("pool__name", "project__name", "array", title=Coalesce("array__name", "name"))
        .annotate(unit=Coalesce("array", "pk"), gpu_milli=Sum("gpu_milli_now"))
    )
    rows = rows.annotate(
        place=Window(RowNumber(), partition_by="pool__name", order_by=("-gpu_milli", "title", "unit")),
        count=Window(Count("*"), partition_by="pool__name"),
    ).filter(place__lte=NAMED_PER_POOL)
    named, counts = defaultdict(list), dict[str, int]()
    for row in rows.order_by("pool__name", "place"):
        url = reverse("array" if row["array"] else "workload", args=[row["unit"]])
        named[row["pool__name"]].append((f"{row['project__name']}/{row['title']}", url))
        counts[row["pool__name"]] = row["count"]
    hidden = set[str | None]()
    if not is_platform_admin(actor):
        others = Workload.objects.filter(running).exclude(project__in=visible_projects(actor))
        hidden.update(others.order_by().values_list("pool__name", flat=True).distinct())
    return {
        pool: WorkloadsWithoutMaxRuntime(each, counts[pool], pool in hidden) for pool, each in named.items()
    }
