"""Data for a workload's page: pods, reasons, evictions and documents."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone

from berth.core.values.amounts import MILLI
from berth.core.wording.blocker_numbers import format_numbers
from berth.core.wording.words import format_count, format_number, token_to_words
from berth.documents.ordered import dump_workload
from berth.documents.units import with_units
from berth.server.web.numbers import elapsed, memory
from projects.actor import Actor
from projects.models import Phase, Pod, Workload, WorkloadArray
from projects.queries.idle_gpus import idle_since
from projects.queries.lost_work import lost_gpu_seconds
from projects.selectors import pods
from scheduler.engine.board.ledger import OVER_QUOTA, OVER_SHARE
from scheduler.engine.explain.reason_detail import BOUNDED, reason_detail, reason_sentence
from scheduler.engine.plan import Reason
from scheduler.models import Allocation
from scheduler.reports.evictions.rendering import RenderedEviction, render_with_links
from scheduler.reports.explanations.awaited_ends import AwaitedEnd, describe_workload_ends_in_utc
from scheduler.reports.explanations.edits import unevaluated_edit_time
from scheduler.reports.explanations.workload import PENDING_PHASES, Explanation, explain
from scheduler.reports.queues.pending_reason import (
    RESTART_DELAY,
    describe_wait_after_delay,
    has_delay_ended,
    pending_reason,
)
from scheduler.reports.queues.queue_ordering import group_sentences_by_queue, make_values_readable
from scheduler.reports.selectors import evictions
from scheduler.reports.visibility import viewer_for, visible_department_ids
from scheduler.web.workloads.pending.change_link import LinkedText, link_names, named_workloads, workload_urls
from scheduler.web.workloads.pending.excess import Excess, find_excess

MAX_EVICTIONS, MAX_PODS = 20, 500
ONLY_FREE, SO_ONLY_FREE = r"^Only free capacity can be used[^.]*\.\s*", "so only free capacity can be used."
SHORTAGES = frozenset(map(str, (Reason.WAITING_FOR_CAPACITY, Reason.FRAGMENTED)))
# For each reason, the deciding column of the quota table, and the kind of queue ("" for either kind).
DECIDING_COLUMNS: Mapping[str, tuple[str, str]] = {
    Reason.WOULD_EXCEED_FAIR_SHARE: ("share", ""),
    Reason.PROJECT_LIMIT: ("limit", "project"),
    Reason.DEPARTMENT_LIMIT: ("limit", "department"),
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: ("quota", ""),
    Reason.DEPARTMENT_OVERSOLD: ("quota", "department"),
}
NOTHING_TO_RECLAIM = str(Reason.NO_RECLAIMABLE_RESOURCES)
LIMIT_SOURCES = {"document": "as declared", "request": "as requested", "pool": "pool default"}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Pending reason with a message, and the numbers that the message does not mention."""

    reason: str
    message: str
    numbers: list[tuple[str, str]]
    urls: Mapping[str, str] = field(default_factory=dict)  # URLs of the workloads named in the message
    excess: Excess | None = None

    @property
    def message_with_links(self) -> LinkedText:
        return link_names(self.message, self.urls)


@dataclass(frozen=True, slots=True)
class PendingDetail:
    """Pending reasons from the last cycle that evaluated the workload, and the states of its queues."""

    decisive: Obstacle | None  # the reason to address first
    others: list[Obstacle]
    after_delay: str  # sentence about the wait after the restart delay, or empty
    above_share: str  # sentence about reserved GPUs above the fair share, or empty
    explanation: Explanation
    start_after: list[tuple[str, str]]  # workloads that must end before the expected start, with links
    pool: str
    queues: list[dict[str, Any]]
    title: str  # heading: the decisive reason in words, or ""
    queue_order: list[tuple[str, list[str]]]  # name and states of each queue, the department first


@dataclass(frozen=True, slots=True)
class PodPlacement:
    pod: Pod
    allocation: Allocation | None

    @property
    def gpus(self) -> int:
        return self.allocation.gpu_milli_total if self.allocation else 0


def describe_pod_limits(limits: Mapping[str, Any], peak: int | None) -> list[tuple[str, str]]:
    """Return a line for each limit of a pod, with its source and, for memory, the peak in MiB."""
    lines = []
    if limits["memory_mib"]:
        source = LIMIT_SOURCES[limits["memory_source"]]
        note = source if peak is None else f"{source}, peak {memory(peak)}"
        lines.append((f"{memory(limits['memory_mib'])} memory", note))
    elif peak is not None:
        lines.append(("no memory limit", f"peak {memory(peak)}"))
    if limits["cpu"]:
        lines.append((f"{limits['cpu']:g} CPU", LIMIT_SOURCES[limits["cpu_source"]]))
    return lines


def pending_detail(actor: Actor, workload: Workload) -> PendingDetail | None:
    if workload.phase not in PENDING_PHASES:
        return None
    explanation = explain(actor, workload)
    decisive, others = split_obstacles(
        build_obstacles(explanation.blockers, hold_owner_urls(actor, explanation.blockers))
    )
    if decisive and decisive.reason == Reason.BACKOFF:
        verb = "ended" if has_delay_ended(workload) else "lasts until"
        message = re.sub("^Until ", f"The restart delay {verb} ", decisive.message)
        decisive = replace(decisive, message=message)
    queues = _add_trace_urls(actor, workload, explanation.queue)
    wait = _describe_wait_after_delay(workload, queues[0])
    if unevaluated_edit_time(workload) is None:
        _mark_exceeded_amounts(queues, explanation.blockers)
    return PendingDetail(
        decisive=decisive,
        others=others,
        after_delay=wait,
        above_share=_explain_reservation_above_share(workload, queues[0]),
        title=pending_reason(workload).label if wait else token_to_words(decisive.reason) if decisive else "",
        explanation=explanation,
        start_after=link_awaited_ends(actor, explanation.expected_start_after),
        pool=str((workload.explanation or {}).get("pool") or ""),
        queues=queues,
        queue_order=_queue_order(workload, explanation.ordering, queues),
    )


def _queue_order(
    workload: Workload, ordering: Sequence[str], queues: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[str]]]:
    """Return (name, states) for each queue in the sort key, the department first."""
    by_name = {queue["name"]: queue for queue in queues if workload.phase == Phase.PENDING}
    requested = workload.gpu_milli_min / MILLI
    return [
        (name, _add_workload_to_states(make_values_readable(states), by_name.get(name, {}), requested))
        for name, states in group_sentences_by_queue(ordering)
    ]


def _add_workload_to_states(states: Sequence[str], queue: Mapping[str, Any], requested: float) -> list[str]:
    columns = {OVER_QUOTA: ("quota", "quota"), OVER_SHARE: ("fair share", "share")}
    exceeded = [columns[state] for state in states if state in columns]
    if not exceeded:
        return list(states)
    total = requested + sum((queue.get(key) or {}).get("gpu") or 0 for key in ("allocated", "reserved"))
    bounds = [(label, (queue.get(column) or {}).get("gpu")) for label, column in exceeded]
    if all(bound is not None and total > bound for _, bound in bounds):
        limits = " and ".join(
            f"{label} of {format_number(bound)}" for label, bound in bounds if bound is not None
        )
        text = f"would have {format_count(total, 'GPU')} with this workload, more than its {limits}"
    else:
        text = f"would be over its {' and '.join(label for label, _ in exceeded)} with this workload"
    return [text, *(state for state in states if state not in columns)]


def _explain_reservation_above_share(workload: Workload, queue: dict[str, Any]) -> str:
    share = (queue["share"] or {}).get("gpu")
    held = sum((queue[key] or {}).get("gpu") or 0 for key in ("allocated", "reserved"))
    if workload.phase != Phase.RESERVED or share is None or held <= share:
        return ""
    gpus, above = format_count(share, "GPU"), format_count(held - share, "GPU")
    return (
        f"Project {queue['name']} is {above} above its fair share of {gpus}. Reserved resources are kept "
        "until the workload runs, even if the fair share falls meanwhile. After that, other queues can "
        "reclaim them."
    )


def _describe_wait_after_delay(workload: Workload, queue: dict[str, Any]) -> str:
    """Return why a workload will stay pending after its restart delay, or "" if it can start then.

    If the reason is a fair share that is too small, mark the fair share in `queue`.
    """
    awaited = describe_wait_after_delay(workload)
    verb = "Now waits" if has_delay_ended(workload) else "Then waits"
    share, requested = (queue["share"] or {}).get("gpu"), workload.gpu_milli_min / MILLI
    held = sum((queue[key] or {}).get("gpu") or 0 for key in ("allocated", "reserved"))
    if not awaited or share is None or held + requested <= share:
        return awaited and f"{verb} {awaited}."
    queue["needed"] = {"share": held + requested}
    total = format_count(held + requested, "GPU")
    return (
        f"{verb} {awaited}: {queue['name']} would have {total}, more than its fair share of "
        f"{format_number(share)} now."
    )


def _mark_exceeded_amounts(queues: list[dict[str, Any]], blockers: Sequence[Mapping[str, Any]]) -> None:
    """For each queue that would exceed its GPU quota, limit or fair share, set the number of GPUs needed."""
    for blocker in blockers:
        column, kind = DECIDING_COLUMNS.get(blocker["reason"], ("", ""))
        numbers = blocker.get("numbers") or {}
        if not column or numbers.get("resource") != "gpu" or "behind" in numbers:
            continue
        for queue in queues[kind == "department" :]:
            if queue["name"] == numbers.get("queue"):
                needed = (numbers.get("allocated", 0) + numbers.get("requested", 0)) / MILLI
                queue["needed"] = {**queue.get("needed", {}), column: needed}
                break


def _add_trace_urls(actor: Actor, workload: Workload, queues: Mapping[str, Any]) -> list[dict[str, Any]]:
    whole = visible_department_ids(actor)
    may_read = {"project": True, "department": whole is None or workload.project.department_id in whole}
    result = []
    for kind, readable in may_read.items():
        place = [f"{kind}s", queues[kind]["name"], queues[kind]["pool"]]
        result.append(
            {**queues[kind], "trace_url": reverse("fair-share-trace", args=place) if readable else ""}
        )
    return result


def link_awaited_ends(actor: Actor, ends: Sequence[AwaitedEnd]) -> list[tuple[str, str]]:
    """Return the clause about the workloads that must end first, split into (text, URL or "") pairs.

    Workloads with idle GPUs are marked.
    """
    now, visible = timezone.now(), [end.workload for end in ends if end.is_visible]
    rows = {row.handle: row.pk for row in named_workloads(actor, visible)}
    idle = idle_since(rows.values(), now) if rows else {}
    since = {name: (now - idle[pk]).total_seconds() for name, pk in rows.items() if pk in idle}
    durations = {name: elapsed(seconds).replace(" ", "\N{NO-BREAK SPACE}") for name, seconds in since.items()}
    notes = {name: f", idle for {duration}" for name, duration in durations.items()}
    urls = {name: reverse("workload", args=[pk]) for name, pk in rows.items()}
    return link_names(describe_workload_ends_in_utc(ends, notes), urls)


def hold_owner_urls(actor: Actor, blockers: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the URLs of the workloads that, according to the blockers, have resources held for them."""
    numbers = [each.get("numbers") or {} for each in blockers]
    return workload_urls(actor, {str(each["behind"]) for each in numbers if "behind" in each})


def build_obstacles(
    blockers: Sequence[Mapping[str, Any]], urls: Mapping[str, str] | None = None
) -> list[Obstacle]:
    """Prepare blockers for display. `urls` contains the URLs of the workloads that they name."""
    messages = [_main_message(blockers[index:]) for index in range(len(blockers))]
    return [
        _build_obstacle(each, message, urls or {}) for each, message in zip(blockers, messages, strict=True)
    ]


def _build_obstacle(blocker: Mapping[str, Any], message: str, urls: Mapping[str, str]) -> Obstacle:
    reason = str(blocker["reason"])
    excess = find_excess(reason, blocker.get("numbers") or {})
    shown = message if excess is None else f"{message} {excess.bar.label}"
    return Obstacle(reason, message, _unmentioned_numbers(blocker, shown), urls, excess)


def _main_message(blockers: Sequence[Mapping[str, Any]]) -> str:
    """Return the first blocker's message, with its numbers if it has any."""
    message = str(blockers[0]["message"]).removeprefix(RESTART_DELAY)
    reasons = [(str(each["reason"]), each.get("numbers") or {}) for each in blockers]
    if sentence := reason_sentence(reasons):
        return f"{sentence} {re.sub(ONLY_FREE, '', message.partition('. ')[2])}".strip()
    detail = reason_detail(reasons)
    if not detail or message[1:].startswith(detail[1:]):
        return message[:1].upper() + message[1:]
    return f"{detail}. {message.partition('. ')[2]}".strip()


def split_obstacles(reasons: Sequence[Obstacle]) -> tuple[Obstacle | None, list[Obstacle]]:
    """Return the decisive reason and the other reasons.

    The decisive reason is None if there are no reasons, and includes shortages and reclaimable amounts where
    they explain it.
    """
    others = [obstacle for obstacle in reasons[1:] if obstacle.reason != NOTHING_TO_RECLAIM]
    decisive = next(iter(reasons), None)
    if decisive is None:
        return None, others
    if others and others[0].reason in SHORTAGES and decisive.message.endswith(SO_ONLY_FREE):
        shortage = others.pop(0)
        message = f"{decisive.message} {_unstated_shortage(decisive.message, shortage.message)}".rstrip()
        decisive = replace(decisive, message=message, numbers=[*decisive.numbers, *shortage.numbers])
    elif decisive.reason == Reason.WAITING_FOR_CAPACITY:
        reclaimable = [obstacle.message for obstacle in reasons if obstacle.reason == NOTHING_TO_RECLAIM]
        decisive = replace(decisive, message=" ".join([decisive.message, *reclaimable]))
    return decisive, others


def _unstated_shortage(message: str, shortage: str) -> str:
    """Return what a shortage adds to the message, or "" if the message states the entire shortage.

    An example of a shortage is "Needs 4 GPUs, 1 is free; also missing: 4 CPUs.".
    """
    free, _, rest = shortage.partition(", ")[2].removesuffix(".").partition("; ")
    if not free or f", {free}. " not in message:
        return shortage
    return f"{rest[:1].upper()}{rest[1:]}." if rest else ""


def _unmentioned_numbers(blocker: Mapping[str, Any], message: str) -> list[tuple[str, str]]:
    """Return the blocker's nonzero numbers that neither its message nor the shown `message` contains."""
    if str(blocker["message"]).startswith(RESTART_DELAY):
        return []
    in_message = set(re.findall(r"[\w.-]*\w", f"{blocker['message']} {message}"))
    reason = blocker["reason"]
    implied = {"missing"} if reason in BOUNDED or reason == Reason.WAITING_FOR_CAPACITY else set()
    hidden = implied | ({"biggest_block"} if reason == Reason.WAITING_FOR_CAPACITY else set())
    numbers = {key: value for key, value in (blocker.get("numbers") or {}).items() if key not in hidden}
    return [
        (label, text)
        for label, text in format_numbers(numbers)
        if text not in ("0", "0 s") and text.split()[0] not in in_message
    ]


def work_lost_if_evicted(workload: Workload, placements: Sequence[PodPlacement], now: datetime) -> int | None:
    """Return the GPU-seconds of work that an eviction now would lose.

    Return None if the workload cannot be evicted or has no GPUs.
    """
    if workload.phase != Phase.RUNNING or not workload.preemptible or not workload.gpu_milli_now:
        return None
    return None if workload.started_at is None else _lost_work(workload, placements, now)


def work_lost_in_failure(workload: Workload, placements: Sequence[PodPlacement]) -> int:
    """Return the GPU-seconds of work that a failed run lost since its last checkpoint, or 0 if unknown."""
    if workload.phase != Phase.FAILED or workload.ended_at is None:
        return 0
    return _lost_work(workload, placements, workload.ended_at)


def _lost_work(workload: Workload, placements: Sequence[PodPlacement], end: datetime) -> int:
    """Return the work that would be lost, in GPU-seconds.

    It is the work of the run's pods since the last checkpoint, or since the run's start if there is none.
    """
    if workload.started_at is None:
        return 0
    return sum(
        lost_gpu_seconds(
            each.gpus,
            max(workload.started_at, each.pod.started_at),
            workload.last_checkpoint_at,
            min(end, each.pod.ended_at or end),
        )
        for each in placements
        if each.pod.started_at is not None
    )


def pod_placements(actor: Actor, workload: Workload) -> tuple[list[PodPlacement], list[PodPlacement]]:
    """Return the pods of the current run and of earlier runs, latest run first."""
    result = list(
        pods(actor)
        .filter(workload=workload)
        .select_related("allocation", "node")
        .order_by("-run", "rank", "role", "index")[:MAX_PODS]
    )
    attempts = [PodPlacement(pod, getattr(pod, "allocation", None)) for pod in result]
    return (
        [attempt for attempt in attempts if attempt.pod.run == workload.run],
        [attempt for attempt in attempts if attempt.pod.run != workload.run],
    )


def evictions_as_victim(actor: Actor, workload: Workload) -> list[RenderedEviction]:
    return render_with_links(
        viewer_for(actor), evictions(actor).filter(workload_id=workload.pk).order_by("-pk")[:MAX_EVICTIONS]
    )


def evictions_as_preemptor(actor: Actor, workload: Workload) -> list[RenderedEviction]:
    return render_with_links(
        viewer_for(actor), evictions(actor).filter(preemptor_id=workload.pk).order_by("-pk")[:MAX_EVICTIONS]
    )


def document_text(workload: Workload | WorkloadArray, **instead: Any) -> str:
    """Return the document of a workload or array as YAML.

    Values in `instead` replace those of the workload.
    """
    return dump_workload(with_units({**workload.spec, **instead}))
