"""Workloads that the expected starts on the queue page depend on."""

from collections import defaultdict
from collections.abc import Sequence

from django.urls import reverse

from berth.core.wording.awaited import MAX_NAMED
from berth.core.wording.words import join_words
from projects.actor import Actor
from projects.models import Phase
from projects.selectors import workloads
from scheduler.reports.explanations.workload import expected_start_after
from scheduler.reports.queues.unknown_start import UNDECLARED
from scheduler.reports.visibility import HIDDEN_WORKLOAD, viewer_for
from scheduler.web.queue_rows import QueueEntry
from scheduler.web.workloads.change_link import link_names, workload_urls


def load_awaited_ends(actor: Actor, entries: Sequence[QueueEntry]) -> None:
    """Set the workloads that must end before each expected start, as text with links."""
    viewer = viewer_for(actor)
    awaited = [
        [end.workload for end in expected_start_after(viewer, row.explanation or {}, starts)][-MAX_NAMED:]
        for row, starts, *_ in entries
    ]
    urls = workload_urls(actor, {name for names in awaited for name in names if name != HIDDEN_WORKLOAD})
    for (row, *_), names in zip(entries, awaited, strict=True):
        row.starts_after = link_names(join_words(list(dict.fromkeys(names))), urls)


def load_endless_workloads(actor: Actor, entries: Sequence[QueueEntry]) -> None:
    """Set the running workloads without a maximum runtime that make a row's expected start unknown.

    Only workloads that the user may see are set, as a list of (name, URL), the largest first.
    """
    pools = set()
    for row, *_ in entries:
        row.endless = []
        if str((row.explanation or {}).get("expected_start_reason") or "").startswith(UNDECLARED):
            pools.add(row.queue_pool)
    if not pools:
        return
    running = workloads(actor).filter(
        phase=Phase.RUNNING, pool__name__in=pools, max_runtime=None, gpu_milli_now__gt=0
    )
    by_pool = defaultdict(list)
    for pool, project, name, pk in running.order_by("-gpu_milli_now", "name", "pk").values_list(
        "pool__name", "project__name", "name", "pk"
    ):
        by_pool[pool].append((f"{project}/{name}", reverse("workload", args=[pk])))
    for row, *_ in entries:
        row.endless = by_pool[row.queue_pool] if row.queue_pool in pools else []
