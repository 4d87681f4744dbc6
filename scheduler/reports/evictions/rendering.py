"""Describe an eviction in the same words for REST, pages, the admin site and the CLI."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from berth.core.amounts import RESOURCES
from berth.core.words import amount, counted, gpus
from projects.models import Workload
from scheduler.models import Eviction
from scheduler.reports.visibility import Reader, called, diverging_queue

DONE = {
    "shrink": "was scaled down",
    "consolidate": "was moved",
    "reclaim": "was reclaimed",
    "preempt": "was preempted",
    "stale_gang": "was stopped because its gang stayed below its minimum",
    "drain": "was evicted because its node is drained",
}


@dataclass(frozen=True, slots=True)
class Party:
    """Victim or preemptor. `name` is empty and `id` is None if the reader may not see the project."""

    called: str
    project: str
    name: str
    id: UUID | None
    queues: list[dict[str, Any]]  # stored queues that this reader may see
    seen: bool
    there: bool  # True if the workload still exists


@dataclass(frozen=True, slots=True)
class RenderedEviction:
    """An eviction as one reader may see it. `explanation` holds the sentences after the summary."""

    row: Eviction
    victim: Party
    preemptor: Party | None
    rule: str
    refused: list[str]
    pods: list[dict[str, Any]]
    summary: str
    explanation: list[str]

    @property
    def numbers(self) -> dict[str, Any]:
        """Audit numbers that the reader may see."""
        stored = _stored_numbers(self.row)
        if self.victim.seen and (self.preemptor is None or self.preemptor.seen):
            return stored
        shared: dict[str, Any] = {key: stored[key] for key in ("units", "sizes") if key in stored}
        queues = self.preemptor.queues if self.preemptor else []
        return {"victim": self.victim.queues, "preemptor": queues, "refused": self.refused, **shared}


def render(reader: Reader, rows: Iterable[Eviction], there: Collection[UUID] = ()) -> list[RenderedEviction]:
    """Render evictions for one reader; `there` contains the ids of workloads that still exist."""
    return [_render_row(reader, row, there) for row in rows]


def to_open(reader: Reader, rows: Iterable[Eviction]) -> list[RenderedEviction]:
    """Render evictions with links to the workloads that still exist."""
    evictions = list(rows)
    ids = {pk for row in evictions for pk in (row.workload_id, row.preemptor_id) if pk is not None}
    there = set(Workload.objects.filter(pk__in=ids).values_list("pk", flat=True)) if ids else set()
    return render(reader, evictions, there)


def standing_line(queue: Mapping[str, Any], gpus_freed: bool) -> str:
    """Return a line such as "research: 8 GPUs allocated before, 4 GPUs after, quota 4 GPUs, ..."."""
    parts = [
        _resource_line(queue, resource)
        for resource in RESOURCES
        if _is_mentioned(queue, resource, gpus_freed)
    ]
    usage = f"; decayed usage {queue['usage']:.3f} of its parent's" if queue.get("usage") else ""
    return f"{queue.get('queue', '')}: {'; '.join(parts)}{usage}"


def _render_row(reader: Reader, row: Eviction, there: Collection[UUID]) -> RenderedEviction:
    stored = _stored_numbers(row)
    victim = _victim(reader, row, stored, there)
    preemptor = _preemptor(reader, row, stored, there)
    refused = [str(each) for each in stored.get("refused") or ()]
    if preemptor is not None and not preemptor.seen:
        refused = []
    return RenderedEviction(
        row=row,
        victim=victim,
        preemptor=preemptor,
        rule=row.rule,
        refused=refused,
        pods=list(row.pods) if victim.seen else [],
        summary=_summary(row, victim, preemptor),
        explanation=list(_explanation(row, victim, preemptor, refused)),
    )


def _stored_numbers(row: Eviction) -> dict[str, Any]:
    return row.numbers if isinstance(row.numbers, dict) else {}


def _victim(reader: Reader, row: Eviction, stored: Mapping[str, Any], there: Collection[UUID]) -> Party:
    seen = reader.sees(row.project_id)
    return Party(
        called=called(row.project_name, row.workload_name, row.gpu_milli, seen=seen),
        project=row.project_name,
        name=row.workload_name if seen else "",
        id=row.workload_id if seen else None,
        queues=_stored_queues(stored, "victim") if seen else diverging_queue(stored, "victim"),
        seen=seen,
        there=seen and row.workload_id in there,
    )


def _preemptor(
    reader: Reader, row: Eviction, stored: Mapping[str, Any], there: Collection[UUID]
) -> Party | None:
    if not row.preemptor_name:
        return None
    seen, sizes = reader.sees(row.preemptor_project_id), stored.get("sizes") or {}
    project = row.preemptor_project_name
    return Party(
        called=called(project, row.preemptor_name, sizes.get("preemptor"), seen=seen),
        project=project,
        name=row.preemptor_name if seen else "",
        id=row.preemptor_id if seen else None,
        queues=_stored_queues(stored, "preemptor") if seen else diverging_queue(stored, "preemptor"),
        seen=seen,
        there=seen and row.preemptor_id in there,
    )


def _stored_queues(stored: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    return [queue for queue in stored.get(side) or () if isinstance(queue, dict)]


def _summary(row: Eviction, victim: Party, preemptor: Party | None) -> str:
    preemptor_suffix = f" for {preemptor.called}" if preemptor else ""
    part = "entire workload" if row.entire_workload else "some of its pods"
    freed = f" ({gpus(row.gpu_milli)}, {part})" if row.gpu_milli else ""
    outcome = DONE.get(row.kind, "was evicted")
    if row.pk is None:  # a prediction
        outcome = outcome.replace("was", "would be", 1)
    return f"{victim.called} {outcome}{preemptor_suffix}{freed}"


def _explanation(row: Eviction, victim: Party, preemptor: Party | None, refused: list[str]) -> Iterator[str]:
    if row.rule:
        yield f"Rule: {row.rule.removesuffix('.')}."
    queues = (*victim.queues, *(preemptor.queues if preemptor else ()))
    sentences = (f"{standing_line(queue, row.gpu_milli > 0)}." for queue in queues)
    yield from dict.fromkeys(sentences)  # shared parent queues appear once
    if row.lost_gpu_seconds:
        yield f"{counted(row.lost_gpu_seconds, 'GPU-second')} of work lost."
    for sentence in refused:
        yield f"Alternative considered: {sentence}"


def _is_mentioned(queue: Mapping[str, Any], resource: str, gpus_freed: bool) -> bool:
    """Return True for GPUs if any were freed or moved, otherwise for the resources that changed."""
    before, after = (queue.get(key) or {} for key in ("allocated_before", "allocated_after"))
    about_gpus = gpus_freed or before.get("gpu") != after.get("gpu")
    if resource == "gpu":
        return about_gpus or before == after
    return not about_gpus and before.get(resource) != after.get(resource)


def _resource_line(queue: Mapping[str, Any], resource: str) -> str:
    before, after, quota, share = (
        amount(resource, (queue.get(key) or {}).get(resource, 0))
        for key in ("allocated_before", "allocated_after", "quota", "share")
    )
    return f"{before} allocated before, {after} after, quota {quota}, fair share {share}"
