"""Facts about the smallest change for a pending workload's page: what to do, and what evicted workloads
lose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models.functions import Coalesce

from berth.core.wording.words import format_count
from projects.actor import Actor
from projects.models import Phase, Project
from projects.models.workloads import LIVE_PHASES
from projects.selectors import workload_count, workloads
from scheduler.engine.smallest_change.change import ChangeKind
from scheduler.engine.smallest_change.search import Outcome
from scheduler.engine.smallest_change.sentences import NAMED_MAX
from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads.pending.change_link import (
    Change,
    EvictionLoss,
    LinkedText,
    link_names,
    losses_by_workload,
    workload_urls,
)


@dataclass(frozen=True, slots=True)
class EvictedWorkload:
    """Workload that the change would evict. `loss` is None if it is unknown."""

    name: str
    url: str
    loss: EvictionLoss | None


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    action: LinkedText
    starts: str  # "now", or the later time at which the workload would start
    evicted: tuple[EvictedWorkload, ...]
    more_evicted: str  # number of further workloads that would be evicted, or empty
    scaled_down: LinkedText
    moved: LinkedText
    rule: str  # rule that allows the evictions, or empty
    # Workload that must be stopped first, by the user or by the workload's owner.
    ended: EvictedWorkload | None
    basis: str  # why the change is not smaller, or empty
    alternative: str  # lower request that would start the workload without evictions, or empty


def build_change_facts(
    actor: Actor, project: Project, answer: RenderedChange, now: datetime
) -> ChangeFacts | None:
    """Return the facts about the change in `answer`, or None if `answer` contains no change."""
    if not answer.action:
        return None
    losses = losses_by_workload(actor, project, answer.evicted, now)
    subject = str((answer.change or {}).get("subject", ""))
    urls = workload_urls(actor, [*answer.affected, *([subject] if "/" in subject else [])])
    evicted = tuple(
        EvictedWorkload(name, urls.get(name, ""), losses.get(name)) for name in answer.evicted[:NAMED_MAX]
    )
    more = answer.evicted_workloads - len(evicted)
    return ChangeFacts(
        link_names(answer.action, urls),
        "once resources are free" if answer.outcome == Outcome.SCHEDULABLE else "now",
        evicted,
        format_count(more, f"{'other ' if evicted else ''}workload") if more else "",
        link_names(_list_names(answer.scaled_down, answer.scaled_down_workloads), urls),
        link_names(_list_names(answer.moved, answer.moved_workloads), urls),
        answer.rule,
        _ended_workload(actor, project, answer.change, urls, now),
        _priority_basis(actor, project, answer),
        answer.action_without_evictions,
    )


def _ended_workload(
    actor: Actor, project: Project, change: Change | None, urls: Mapping[str, str], now: datetime
) -> EvictedWorkload | None:
    """Return the workload that the change would end, with the work that it would lose.

    Return None if the change ends no workload or the workload is hidden from the user.
    """
    if change is None or change["kind"] != ChangeKind.WORKLOAD_ENDED or change["subject"] not in urls:
        return None
    name = str(change["subject"])
    return EvictedWorkload(name, urls[name], losses_by_workload(actor, project, [name], now).get(name))


def _priority_basis(actor: Actor, project: Project, answer: RenderedChange) -> str:
    """Return text that names the workloads that the proposed priority just outranks.

    Return "" if there are none to name.
    """
    change = answer.change
    if change is None or change["kind"] != ChangeKind.PRIORITY_RAISED:
        return ""
    below = int(change["after"]) - 1
    if answer.rule.endswith(f"priority {below}"):
        return ""
    rows = workloads(actor).filter(project=project, priority=below, phase__in=LIVE_PHASES)
    rows = rows.exclude(phase=Phase.SUSPENDED)
    named = rows.order_by().annotate(title=Coalesce("array__name", "name"), unit=Coalesce("array", "pk"))
    names = tuple(
        title
        for title, _ in named.values_list("title", "unit").distinct().order_by("title", "unit")[:NAMED_MAX]
    )
    if not names:
        return ""
    count: int = rows.aggregate(n=workload_count())["n"]
    listed = _list_names(names, count)
    return f"one above {listed}, which {'has' if count == 1 else 'have'} priority {below}"


def _list_names(names: tuple[str, ...], count: int) -> str:
    """Return up to three visible names and the number of other workloads."""
    shown = names[:NAMED_MAX]
    more = count - len(shown)
    others = [format_count(more, "other workload" if shown else "workload")] if more else []
    return ", ".join([*shown, *others])
