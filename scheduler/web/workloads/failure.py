"""Cause of a workload's failure: which pod failed, on which node, and after how long."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Exists, OuterRef
from django.utils.text import Truncator

from berth.server.web.numbers import duration
from projects.actor import Actor
from projects.engine.pod_sentences import describe_pod_exit
from projects.models import Phase, Pod, PodState, Workload
from projects.selectors import workloads
from projects.services.arrays import GENERAL_REASONS
from projects.web.workloads.listing.filters import one_row_per_array
from scheduler.web.workloads.details import PodPlacement

MAX_FACT_LENGTH = 80
MAX_NAMED, NEARBY = 3, timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Failure:
    """Cause of a workload's failure. `pod` is None if no pod failed.

    `runtime` is a phrase such as " after 5 s".
    """

    title: str
    detail: str
    pod: Pod | None
    runtime: str = ""


def first_failed_pod(workload: Workload, placements: Iterable[PodPlacement]) -> Pod | None:
    """Return the pod that failed first in the last run, or None."""
    if workload.phase != Phase.FAILED:
        return None
    failed = [each.pod for each in placements if each.pod.run == workload.run and each.pod.state == "failed"]
    return min(failed, key=_end_sort_key, default=None)


def describe_failure(workload: Workload, placements: Iterable[PodPlacement]) -> Failure | None:
    """Return the cause of the workload's failure, or None if the workload has not failed."""
    if workload.phase != Phase.FAILED:
        return None
    message = workload.message[:1].upper() + workload.message[1:]
    pod = first_failed_pod(workload, placements)
    if pod is None:
        return Failure(message.removesuffix(".") or "The workload failed", "", None)
    ending = describe_pod_exit(pod.role, pod.index, pod.exit_code, pod.signal)
    return Failure(ending, _remaining_message(message, ending), pod, _runtime_phrase(pod))


@dataclass(frozen=True, slots=True)
class OtherFailures:
    """Other workloads and arrays with a pod that failed on the same node.

    `named` contains the latest of them, and `has_more` is True if there are more.
    """

    node: str
    named: Sequence[Workload]
    has_more: bool


def other_failures(actor: Actor, workload: Workload, failure: Failure | None) -> OtherFailures | None:
    """Return the visible workloads and arrays that failed on the same node within a day, or None.

    Other tasks of the workload's array are omitted.
    """
    pod = failure.pod if failure is not None else None
    if pod is None or pod.ended_at is None:
        return None
    period = pod.ended_at - NEARBY, pod.ended_at + NEARBY
    failed_there = Pod.objects.filter(
        workload=OuterRef("pk"),
        run=OuterRef("run"),
        node=pod.node_id,
        state=PodState.FAILED,
        ended_at__range=period,
    ).order_by()
    rows = workloads(actor).filter(Exists(failed_there), phase=Phase.FAILED, ended_at__range=period)
    rows = rows.exclude(pk=workload.pk)
    if workload.array_id is not None:
        rows = rows.exclude(array__isnull=False, array=workload.array_id)
    latest = one_row_per_array(rows).select_related("project", "array").order_by("-ended_at", "pk")
    failures = list(latest[: MAX_NAMED + 1])
    named = failures[:MAX_NAMED]
    return OtherFailures(pod.node.name, named, len(failures) > MAX_NAMED) if failures else None


def failure_fact(workload: Workload) -> str:
    """Return the cause of a failure in a few words: the message, or the exit code if it is more informative.

    Return "" if the workload has not failed.
    """
    if workload.phase != Phase.FAILED:
        return ""
    if workload.exit_code is not None and (workload.reason in GENERAL_REASONS or not workload.message):
        return f"exit code {workload.exit_code}"
    return Truncator(workload.message.removesuffix(".")).chars(MAX_FACT_LENGTH)


def last_pool(workload: Workload) -> str:
    """Return the pool of an ended workload's last run, or "" if the workload never ran or has not ended."""
    if workload.ended_at is None or not workload.run:
        return ""
    return workload.pods.filter(run=workload.run).values_list("node__pool__name", flat=True).first() or ""


def _end_sort_key(pod: Pod) -> tuple[datetime, int]:
    return pod.ended_at or datetime.max.replace(tzinfo=UTC), pod.rank


def _runtime_phrase(pod: Pod) -> str:
    if pod.started_at is None or pod.ended_at is None:
        return ""
    seconds = (pod.ended_at - pod.started_at).total_seconds()
    return " in less than 1 s" if seconds < 1 else f" after {duration(seconds)}"


def _remaining_message(message: str, ending: str) -> str:
    """Return the part of the workload's message that does not describe how the pod ended."""
    rest = message.removeprefix(ending).lstrip(":;. ") if message.startswith(ending) else message
    return rest[:1].upper() + rest[1:]
