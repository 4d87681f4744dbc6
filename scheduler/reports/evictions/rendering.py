"""Render evictions with the same wording for REST, web pages, the admin site and the CLI."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from berth.core.values.amounts import RESOURCES
from berth.core.wording.words import format_amount, format_gpu_time, format_gpus
from projects.models import Workload
from scheduler.models import Eviction
from scheduler.reports.visibility import Viewer, topmost_unshared_queue, workload_display_name

RULE_PREFIX, ALTERNATIVE_PREFIX = "Rule: ", "Alternative considered: "
KIND_TITLES = {
    "preempt": "Preempted",
    "reclaim": "Reclaimed",
    "consolidate": "Moved",
    "shrink": "Scaled down",
    "stale_gang": "Stopped below minimum",
    "drain": "Drained",
    "cluster": "Evicted by the cluster",
}
OUTCOMES = {
    "shrink": "was scaled down",
    "consolidate": "was moved",
    "reclaim": "was reclaimed",
    "preempt": "was preempted",
    "stale_gang": "was stopped because its gang stayed below its minimum",
    "drain": "was evicted because its node is drained",
    "cluster": "was evicted by its cluster",
}


def eviction_preposition(kind: str) -> str:
    """Return the preposition before an eviction's preemptor, as in "Preempted by" and "Moved for"."""
    return "by" if kind in ("preempt", "reclaim") else "for"


@dataclass(frozen=True, slots=True)
class EvictionParty:
    """The victim or the preemptor of an eviction.

    `name` is empty and `id` is None if the project is hidden from the user.
    """

    display_name: str
    project: str
    name: str
    id: UUID | None
    queues: list[dict[str, Any]]  # quota, fair share and allocation of each visible queue
    is_visible: bool
    exists: bool


@dataclass(frozen=True, slots=True)
class RenderedEviction:
    """Eviction as rendered for one user.

    `explanation` contains the sentences after the summary.
    """

    row: Eviction
    victim: EvictionParty
    preemptor: EvictionParty | None
    rule: str
    rejected: list[str]
    pods: list[dict[str, Any]]
    summary: str
    explanation: list[str]

    @property
    def lost_all_gpus(self) -> bool:
        """Whether another workload took all of the victim's GPUs."""
        is_taken = self.row.kind in ("reclaim", "preempt") and self.preemptor is not None
        return is_taken and self.row.entire_workload and self.row.gpu_milli > 0

    @property
    def rule_sentence(self) -> str:
        """The rule as a sentence, which starts with a capital letter unless it starts with a name."""
        return rule_sentence(self.row, self.rule)

    @property
    def queue_amount_lines(self) -> list[str]:
        """Lines with the allocation, quota and fair share of each visible queue that the rule names."""
        named = set(re.findall(r"[\w.-]+", self.rule))
        queues = (*(self.preemptor.queues if self.preemptor else ()), *self.victim.queues)
        lines = (describe_queue(queue, True) for queue in queues if queue.get("queue") in named)
        return list(dict.fromkeys(lines))

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers of the audit record that the user may see."""
        stored = _stored_numbers(self.row)
        if self.victim.is_visible and (self.preemptor is None or self.preemptor.is_visible):
            return stored
        shared: dict[str, Any] = {key: stored[key] for key in ("units", "sizes") if key in stored}
        queues = self.preemptor.queues if self.preemptor else []
        return {"victim": self.victim.queues, "preemptor": queues, "rejected": self.rejected, **shared}


def render(
    reader: Viewer, rows: Iterable[Eviction], existing_ids: Collection[UUID] = ()
) -> list[RenderedEviction]:
    """Render evictions for one user. `existing_ids` contains the IDs of workloads that still exist."""
    return [_render_row(reader, row, existing_ids) for row in rows]


def render_with_links(reader: Viewer, rows: Iterable[Eviction]) -> list[RenderedEviction]:
    """Render evictions with links to the workloads that still exist."""
    evictions = list(rows)
    ids = {pk for row in evictions for pk in (row.workload_id, row.preemptor_id) if pk is not None}
    existing_ids = set(Workload.objects.filter(pk__in=ids).values_list("pk", flat=True)) if ids else set()
    return render(reader, evictions, existing_ids)


def describe_queue(queue: Mapping[str, Any], gpus_freed: bool) -> str:
    """Return a line such as "nlp: 8 GPUs allocated before, 4 GPUs after, quota 4 GPUs, fair share 4 GPUs"."""
    parts = [
        _describe_resource(queue, resource)
        for resource in RESOURCES
        if _should_mention_resource(queue, resource, gpus_freed)
    ]
    usage = f"; decayed usage {queue['usage']:.3f} of its parent's" if queue.get("usage") else ""
    return f"{queue.get('queue', '')}: {'; '.join(parts)}{usage}"


def _render_row(reader: Viewer, row: Eviction, existing_ids: Collection[UUID]) -> RenderedEviction:
    stored = _stored_numbers(row)
    victim = _render_victim(reader, row, stored, existing_ids)
    preemptor = _render_preemptor(reader, row, stored, existing_ids)
    rejected = [str(sentence) for sentence in stored.get("rejected") or ()]
    if preemptor is not None and not preemptor.is_visible:
        rejected = []
    return RenderedEviction(
        row=row,
        victim=victim,
        preemptor=preemptor,
        rule=row.rule,
        rejected=rejected,
        pods=list(row.pods) if victim.is_visible else [],
        summary=_summarize_eviction(row, victim, preemptor),
        explanation=list(_explanation_sentences(row, victim, preemptor, rejected)),
    )


def rule_sentence(row: Eviction, rule: str) -> str:
    """Return an eviction's rule as a sentence. The first word is capitalized unless it is a name."""
    names = (row.workload_name, row.project_name, row.department_name, row.preemptor_name)
    return capitalize_rule(rule, {*names, row.preemptor_project_name, *_queue_names(_stored_numbers(row))})


def capitalize_rule(rule: str, names: Collection[str]) -> str:
    """Return an eviction rule as a sentence.

    Capitalize the sentence unless it starts with one of the `names`.
    """
    rule = rule.removesuffix(".")
    starts_with_name = rule.partition(" ")[0] in names
    return f"{rule if starts_with_name else rule[:1].upper() + rule[1:]}." if rule else ""


def _queue_names(numbers: Mapping[str, Any]) -> set[str]:
    sides = ("victim", "preemptor")
    return {str(queue.get("queue", "")) for side in sides for queue in numbers.get(side) or ()}


def _stored_numbers(row: Eviction) -> dict[str, Any]:
    return row.numbers if isinstance(row.numbers, dict) else {}


def _render_victim(
    reader: Viewer, row: Eviction, stored: Mapping[str, Any], existing_ids: Collection[UUID]
) -> EvictionParty:
    is_visible = reader.can_see(row.project_id)
    return EvictionParty(
        display_name=workload_display_name(
            row.project_name, row.workload_name, row.gpu_milli, is_visible=is_visible
        ),
        project=row.project_name,
        name=row.workload_name if is_visible else "",
        id=row.workload_id if is_visible else None,
        queues=_stored_queues(stored, "victim") if is_visible else topmost_unshared_queue(stored, "victim"),
        is_visible=is_visible,
        exists=is_visible and row.workload_id in existing_ids,
    )


def _render_preemptor(
    reader: Viewer, row: Eviction, stored: Mapping[str, Any], existing_ids: Collection[UUID]
) -> EvictionParty | None:
    if not row.preemptor_name:
        return None
    is_visible, sizes = reader.can_see(row.preemptor_project_id), stored.get("sizes") or {}
    project = row.preemptor_project_name
    return EvictionParty(
        display_name=workload_display_name(
            project, row.preemptor_name, sizes.get("preemptor"), is_visible=is_visible
        ),
        project=project,
        name=row.preemptor_name if is_visible else "",
        id=row.preemptor_id if is_visible else None,
        queues=_stored_queues(stored, "preemptor")
        if is_visible
        else topmost_unshared_queue(stored, "preemptor"),
        is_visible=is_visible,
        exists=is_visible and row.preemptor_id in existing_ids,
    )


def _stored_queues(stored: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    return [queue for queue in stored.get(side) or () if isinstance(queue, dict)]


def _summarize_eviction(row: Eviction, victim: EvictionParty, preemptor: EvictionParty | None) -> str:
    preemptor_suffix = f" for {preemptor.display_name}" if preemptor else ""
    part = ", entire workload" if row.entire_workload else ", some of its pods"
    amount = format_gpus(row.gpu_milli) + ("" if row.kind == "consolidate" else part)
    freed = f" ({amount})" if row.gpu_milli else ""
    outcome = OUTCOMES.get(row.kind, "was evicted")
    if row.pk is None:  # the row is a predicted eviction
        outcome = outcome.replace("was", "would be", 1)
    return f"{victim.display_name} {outcome}{preemptor_suffix}{freed}"


def _explanation_sentences(
    row: Eviction, victim: EvictionParty, preemptor: EvictionParty | None, rejected: list[str]
) -> Iterator[str]:
    if row.rule:
        yield f"{RULE_PREFIX}{row.rule.removesuffix('.')}."
    queues = (*victim.queues, *(preemptor.queues if preemptor else ()))
    sentences = (f"{describe_queue(queue, row.gpu_milli > 0)}." for queue in queues)
    yield from dict.fromkeys(sentences)  # shared parent queues appear once
    if row.lost_gpu_seconds:
        yield f"{format_gpu_time(row.lost_gpu_seconds)} of work lost."
    for sentence in rejected:
        yield f"{ALTERNATIVE_PREFIX}{sentence}"


def _should_mention_resource(queue: Mapping[str, Any], resource: str, gpus_freed: bool) -> bool:
    """Return whether a queue's description should mention a resource.

    If GPUs were freed, only GPUs are mentioned.
    """
    before, after = (queue.get(key) or {} for key in ("allocated_before", "allocated_after"))
    about_gpus = gpus_freed or before.get("gpu") != after.get("gpu")
    if resource == "gpu":
        return about_gpus or before == after
    return not about_gpus and before.get(resource) != after.get(resource)


def _describe_resource(queue: Mapping[str, Any], resource: str) -> str:
    before, after, quota, share = (
        format_amount(resource, (queue.get(key) or {}).get(resource, 0))
        for key in ("allocated_before", "allocated_after", "quota", "share")
    )
    return f"{before} allocated before, {after} after, quota {quota}, fair share {share}"
