"""Forecast of when an array's failed tasks would start if they were retried."""

from datetime import UTC, datetime

from berth.core.errors import BerthError
from berth.core.spec.sections.arrays import compress
from berth.core.wording.words import format_count
from projects.actor import Actor
from projects.models import Phase, Workload, WorkloadArray
from projects.services import arrays
from projects.services.arrays import TaskCounts, count_tasks_by_array
from projects.services.workloads import free_name
from projects.services.workloads.prediction import TasksPrediction
from projects.web.arrays.queued_tasks import load_queued_tasks


def describe_retry(actor: Actor, array: WorkloadArray) -> str:
    """Return when the failed tasks would start after a retry, in sentences.

    If the array allows no further running tasks, state what the tasks would wait for. Otherwise, predict the
    next scheduling cycle. Return "" if the prediction fails.
    """
    counts = count_tasks_by_array([array])[array.pk]
    current = counts.pending + counts.reserved + counts.starting + counts.running + counts.stopping
    tasks = Workload.objects.filter(array=array, superseded=False).order_by("array_index")
    failed = tasks.filter(phase=Phase.FAILED).values_list("array_index", flat=True)
    indexes = [index or 0 for index in failed]
    if array.max_running is not None and current >= array.max_running:
        first_held = tasks.filter(held=True).values_list("array_index", flat=True).first()
        are_next = first_held is None or indexes[-1] < first_held
        return f"{_describe_limit(counts, current, are_next=are_next)} {_describe_next_start(array)}"
    section = [int(part) if part.isdigit() else part for part in compress(indexes).split(",")]
    document = {
        **array.spec, "name": free_name(array.project, f"{array.name[:50]}-retry"),
        "array": {**array.spec["array"], "tasks": section},
    }  # fmt: skip
    try:
        _, predicted = arrays.predict(actor=actor, document=document)
    except BerthError:
        return ""
    return _describe_prediction(predicted)


def _describe_limit(counts: TaskCounts, current: int, *, are_next: bool) -> str:
    """Describe when retried tasks are queued in an array that has reached its limit on running tasks."""
    ends = (
        "When the pending or running task ends"
        if current == 1
        else f"When one of the {current:,} pending or running tasks ends"
    )
    if not counts.held:
        return f"{ends}, the retried tasks are queued."
    if are_next:
        waiting = "the waiting task" if counts.held == 1 else f"the {counts.held:,} waiting tasks"
        return f"{ends}, the retried tasks are queued before {waiting}."
    return f"{ends}, the waiting and the retried tasks are queued in order of their index."


def _describe_next_start(array: WorkloadArray) -> str:
    queued = load_queued_tasks([array.pk]).get(array.pk)
    start = queued.next_start if queued is not None else None
    return f"The next task is expected to start at about {_format_time(start)}." if start else ""


def _describe_prediction(predicted: TasksPrediction) -> str:
    parts = (
        (predicted.would_start, "would start immediately"),
        (predicted.would_evict, "would start by evicting other workloads"),
        (predicted.would_queue, "would be queued"),
    )
    (count, text), *others = [(count, text) for count, text in parts if count]
    subject = f"{count:,} of {format_count(predicted.tasks, 'task')}"
    if not others:
        subject = "The task" if count == 1 else f"All {count:,} tasks"
    sentence = f"{subject} {text}{''.join(f', {number:,} {words}' for number, words in others)}."
    start = predicted.first_task.expected_start
    is_queued = predicted.would_queue == predicted.tasks
    return f"{sentence} Expected start: about {_format_time(start)}." if is_queued and start else sentence


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
