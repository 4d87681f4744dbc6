"""Derive pod reports from the status of Kubernetes pods."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pools.kubernetes.code import container as code
from pools.kubernetes.code.delivery import FAILURE, PROGRESS
from pools.kubernetes.files import container as files
from pools.kubernetes.manifests import CONTAINER
from pools.kubernetes.nodes import parse_time
from pools.runtimes.base import PodCause, PodReport, PodState

OUT_OF_MEMORY = "OOMKilled"
# Reasons that Kubernetes reports for a container whose command could not be started.
START_ERRORS = ("StartError", "ContainerCannotRun", "RunContainerError")
MISSING_PROGRAM = re.compile(r'exec: "([^"]{1,200})": (?:executable file not found|stat .*: no such file)')
# Reasons that Kubernetes reports for a waiting container that can never start.
HOPELESS = ("ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
# Reasons that Kubernetes reports for a container whose image has not been pulled yet.
PULLING = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable")
DELETED = "the pod was deleted in Kubernetes, for example by `kubectl drain`"
# Reasons that Kubernetes reports for a failed pod that was stopped by its node.
NODE_EVICTIONS = ("Evicted", "Preempting", "Terminated", "Shutdown")
DISRUPTIONS = {
    "EvictionByEvictionAPI": "the pod was evicted in Kubernetes, for example by `kubectl drain`",
    "DeletionByTaintManager": "the pod was evicted in Kubernetes because of a taint on its node",
    "PreemptionByScheduler": "the pod was preempted in Kubernetes for a pod with a higher priority",
}  # reasons for the DisruptionTarget condition
# Reasons that Kubernetes reports for a container that is about to start.
NOT_STARTED = ("", "ContainerCreating", "PodInitializing")
COPYING = "copying the pod's files"
SIGNALS_MAX = 64
TEXT_MAX = 500
Object = Mapping[str, Any]


def read_report(pod: Object) -> PodReport:
    """Return the report for a pod that exists in the cluster.

    While its files are being copied, a pod occupies its resources and counts as running.
    """
    report = _report_for_state(pod)
    return report if report.state is PodState.EXITED else replace(report, eviction=_eviction_message(pod))


def _report_for_state(pod: Object) -> PodReport:
    status = pod.get("status") or {}
    state, receiver = _container_state(status, "containerStatuses", CONTAINER), _code_container_state(status)
    if (terminated := state.get("terminated")) is not None:
        report = _exit_report(pod, terminated)
        if not _keeps_files(status):
            return report
        if report.started_at is None:
            return PodReport(PodState.STARTING, progress=COPYING)
        return PodReport(PodState.RUNNING, started_at=report.started_at, address=report.address)
    if (running := state.get("running")) is not None:
        return PodReport(
            PodState.RUNNING,
            started_at=_valid_time(running.get("startedAt")),
            address=status.get("podIP") or "",
        )
    if status.get("phase") == "Failed":
        ended = receiver.get("terminated") or {}
        return _failure_report(pod, _code_failure(ended) if ended.get("exitCode") else "")
    if "running" in receiver:
        return PodReport(PodState.STARTING, progress=PROGRESS)
    waiting = receiver.get("waiting") or state.get("waiting") or {}
    if waiting.get("reason") in HOPELESS:
        message = _printable_text(
            f"{waiting['reason']}: {waiting.get('message') or 'the image cannot be used'}"
        )
        return PodReport(PodState.EXITED, cause=PodCause.IMAGE_PULL_FAILED, message=message)
    pulls_image = waiting.get("reason") in PULLING
    return PodReport(PodState.STARTING, progress=_progress(pod, waiting), pulls_image=pulls_image)


def awaits_code(pod: Object) -> bool:
    """Return whether the pod is waiting for its code: its init container is running, and it is not being
    deleted.
    """
    return (
        "running" in _code_container_state(pod.get("status") or {})
        and "deletionTimestamp" not in pod["metadata"]
    )


def has_files_to_copy(pod: Object) -> bool:
    """Return whether the pod's files can be copied now: its files container is running, and its command has
    ended or is being stopped.
    """
    status = pod.get("status") or {}
    if "running" not in _container_state(status, "containerStatuses", files.CONTAINER):
        return False
    return command_report(pod) is not None or "deletionTimestamp" in pod["metadata"]


def command_report(pod: Object) -> PodReport | None:
    """Return the command's report, or None if the command has not ended.

    The pod's files may not have been copied yet.
    """
    terminated = _container_state(pod.get("status") or {}, "containerStatuses", CONTAINER).get("terminated")
    return None if terminated is None else _exit_report(pod, terminated)


def _keeps_files(status: Object) -> bool:
    if status.get("phase") == "Failed":
        return False
    state = _container_state(status, "containerStatuses", files.CONTAINER)
    reason = (state.get("waiting") or {}).get("reason") or ""
    return "running" in state or ("waiting" in state and reason in NOT_STARTED)


def deleted_pod_report(pod: Object) -> PodReport:
    """Return the report for a deleted pod, derived from its last state."""
    report = read_report(pod)
    if report.state is PodState.EXITED:
        return report
    return PodReport(
        PodState.EXITED, cause=PodCause.EVICTED, started_at=report.started_at,
        ended_at=_valid_time(pod["metadata"].get("deletionTimestamp")), message=_deletion_message(pod),
    )  # fmt: skip


def _is_evicted_by_node(pod: Object) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Failed" and status.get("reason") in NODE_EVICTIONS


def _eviction_message(pod: Object) -> str:
    """Return why the cluster is stopping the pod, or "" if it is not."""
    if _is_evicted_by_node(pod):
        return _node_eviction_message(pod)
    return _deletion_message(pod) if pod["metadata"].get("deletionTimestamp") else ""


def _node_eviction_message(pod: Object) -> str:
    status = pod["status"]
    return _printable_text(
        f"the pod was evicted by its node: {status.get('message') or status['reason']}".rstrip(". ")
    )


def _deletion_message(pod: Object) -> str:
    """Return why the pod was deleted. Clusters before 1.26 do not report the reason."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return DISRUPTIONS.get(condition.get("reason") or "", DELETED)
    return DELETED


def unschedulable_message(pod: Object) -> tuple[str, datetime | None]:
    """Return why the cluster's scheduler cannot place the pod, and since when.

    The reason is "" if the scheduler has reported no obstacle.
    """
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            text = condition.get("message") or condition.get("reason") or "no reason given"
            return _printable_text(text), parse_time(condition.get("lastTransitionTime"))
    return "", None


def _exit_report(pod: Object, terminated: Object) -> PodReport:
    code, reason = int(terminated.get("exitCode") or 0), terminated.get("reason") or ""
    started, ended = _valid_time(terminated.get("startedAt")), _valid_time(terminated.get("finishedAt"))
    if reason in START_ERRORS:
        message = _start_error(terminated.get("message") or reason)
        return PodReport(PodState.EXITED, ended_at=ended, cause=PodCause.START_FAILED, message=message)
    number = int(terminated.get("signal") or 0) or (code - 128 if 128 < code <= 128 + SIGNALS_MAX else 0)
    cause, message = PodCause.NONE, ""
    if reason == OUT_OF_MEMORY:
        cause, message = PodCause.OUT_OF_MEMORY, "the pod used all memory that its limit allows"
    elif reason == "ContainerStatusUnknown":
        cause, message = PodCause.LOST, "the node lost the container"
    elif _is_evicted_by_node(pod):
        cause, message = PodCause.EVICTED, _node_eviction_message(pod)
    elif _was_ended_by_deletion(pod, ended):
        cause, message = PodCause.EVICTED, _deletion_message(pod)
    return PodReport(
        PodState.EXITED,
        exit_code=None if number else code,
        signal=number or None,
        started_at=started,
        ended_at=ended,
        cause=cause,
        message=message,
        address=(pod.get("status") or {}).get("podIP") or "",
    )


def _was_ended_by_deletion(pod: Object, ended: datetime | None) -> bool:
    """Return whether the pod was deleted before its command ended.

    A later deletion does not count, because Berth itself may delete a pod while its files are being copied.
    """
    metadata = pod["metadata"]
    if not (deadline := _valid_time(metadata.get("deletionTimestamp"))):
        return False
    deleted = deadline - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    keeps_files = _container_state(pod["status"], "containerStatuses", files.CONTAINER) != {}
    return not keeps_files or ended is None or ended >= deleted


def _start_error(message: str) -> str:
    missing = MISSING_PROGRAM.search(message)
    return (
        f"the image has no program `{_printable_text(missing[1])}`" if missing else _printable_text(message)
    )


def _failure_report(pod: Object, code_failure: str) -> PodReport:
    """Return the report for a pod that failed before its command started.

    `code_failure` says why the pod did not receive its code. If it is empty, the node rejected or stopped the
    pod.
    """
    status = pod["status"]
    reason, message = status.get("reason") or "", status.get("message") or ""
    if pod["metadata"].get("deletionTimestamp"):
        return PodReport(PodState.EXITED, cause=PodCause.EVICTED, message=_deletion_message(pod))
    if _is_evicted_by_node(pod):
        return PodReport(PodState.EXITED, cause=PodCause.EVICTED, message=_node_eviction_message(pod))
    if code_failure and not reason:
        return PodReport(PodState.EXITED, cause=PodCause.START_FAILED, message=_printable_text(code_failure))
    text = _printable_text(f"the node rejected the pod: {reason}: {message}".rstrip(": "))
    return PodReport(PodState.EXITED, cause=PodCause.LOST, message=text)


def _progress(pod: Object, waiting: Object) -> str:
    unschedulable, _ = unschedulable_message(pod)
    if unschedulable:
        return f"the cluster's scheduler reports: {unschedulable}"
    reason = waiting.get("reason") or ""
    if reason in NOT_STARTED:
        return (
            "creating the container" if pod["spec"].get("nodeName") else "waiting for the cluster's scheduler"
        )
    return _printable_text(f"{reason}: {waiting.get('message') or ''}".rstrip(": "))


def _code_failure(terminated: Object) -> str:
    reason = terminated.get("reason") or ""
    if reason in START_ERRORS:
        return f"{FAILURE}: its image cannot run `sh`: {terminated.get('message') or reason}"
    if reason == OUT_OF_MEMORY:
        return f"{FAILURE}: the pod used all memory that its limit allows"
    return f"{FAILURE}: the container that waits for it ended with exit code {terminated['exitCode']}"


def _code_container_state(status: Object) -> Object:
    return _container_state(status, "initContainerStatuses", code.CONTAINER)


def _container_state(status: Object, kind: str, name: str) -> Object:
    """Return the state of a container, or an empty state if the container has not reported one."""
    containers = status.get(kind) or ()
    container: Object = next((each for each in containers if each.get("name") == name), {})
    return container.get("state") or {}


def _valid_time(text: str | None) -> datetime | None:
    moment = parse_time(text)
    return None if moment is None or moment.year < 1971 else moment


def _printable_text(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:TEXT_MAX]
