"""Cause of a workload's failure: which pod failed, on which node, and after how long."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from berth.server.web.numbers import duration
from projects.engine.pod_sentences import pod_ending
from projects.models import Phase, Pod, Workload
from scheduler.web.workloads.details import PodPlacement


@dataclass(frozen=True, slots=True)
class Failure:
    """Cause of a workload's failure. `pod` is None if no pod failed."""

    title: str
    detail: str
    pod: Pod | None


def first_failed_pod(workload: Workload, placements: Iterable[PodPlacement]) -> Pod | None:
    """Return the pod that failed first in the last run, or None. This failure often causes the failures of
    the other pods.
    """
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
    ending = pod_ending(pod.role, pod.index, pod.exit_code, pod.signal)
    return Failure(
        f"{ending} on {pod.node.name}{_runtime_phrase(pod)}", _remaining_message(message, ending), pod
    )


def _end_sort_key(pod: Pod) -> tuple[datetime, int]:
    return pod.ended_at or datetime.max.replace(tzinfo=UTC), pod.rank


def _runtime_phrase(pod: Pod) -> str:
    if pod.started_at is None or pod.ended_at is None:
        return ""
    seconds = (pod.ended_at - pod.started_at).total_seconds()
    return " in less than 1 s" if seconds < 1 else f" after {duration(seconds)}"


def _remaining_message(message: str, ending: str) -> str:
    """Return the part of the workload's message that does not describe the pod's end."""
    rest = message.removeprefix(ending).lstrip(":;. ") if message.startswith(ending) else message
    return rest[:1].upper() + rest[1:]
