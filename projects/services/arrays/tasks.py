"""Build and store the workloads of an array's tasks."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec.rules.arrays import task_name
from projects.actor import Actor
from projects.models import Event, Workload, WorkloadArray
from projects.models.arrays import WAITING_MESSAGE, WAITING_REASON
from projects.services import announce, events
from projects.services.workloads.storing import store_workloads
from projects.services.workloads.submission import Draft, name_taken_error

CHUNK = 1000  # tasks per query
Attempts = Mapping[int, int]  # attempt number of each task index


def store_tasks(
    array: WorkloadArray, model: Draft, attempts: Attempts, actor: Actor, warnings: Sequence[str]
) -> None:
    """Store a held task for each index, as a copy of `model`.

    Raises Conflict if a live workload or an active array has the name of a task.
    """
    message = " ".join([f"Submitted by {actor.name}.", *warnings])
    tasks = _build_tasks(array, model, attempts)
    last: Workload | None = None
    while chunk := list(islice(tasks, CHUNK)):
        stored = store_workloads(
            [(task, model.tree) for task in chunk],
            [_submission_event(task, message, actor) for task in chunk],
            [],
        )
        if len(stored) < len(chunk):
            raise _name_taken_error(array, next(task for task in chunk if task.pk not in stored))
        last = chunk[-1]
    if last is not None:
        # One announcement is enough, because lists refresh after any change in the project.
        # No page shows the new tasks yet.
        announce.workload_changed(last)


def _build_tasks(array: WorkloadArray, model: Draft, attempts: Attempts) -> Iterator[Workload]:
    section = model.spec.array
    assert section is not None
    workload = model.workload
    values = {field.attname: getattr(workload, field.attname) for field in workload._meta.concrete_fields}
    values |= {
        "array_id": array.pk,
        "submitted_by_id": array.submitted_by_id,
        "held": True,
        "reason": WAITING_REASON,
        "message": WAITING_MESSAGE,
        "pending_reasons": [{"reason": WAITING_REASON, "since": workload.since.isoformat()}],
    }
    document = {key: value for key, value in workload.spec.items() if key != "array"}
    env: dict[str, str] = document.get("env", {})
    parameters = section.parameters()
    for index, attempt in attempts.items():
        name = task_name(array.name, index)
        task_values = {"id": uuid.uuid4(), "name": name, "array_index": index, "attempt": attempt}
        task = Workload(**{**values, **task_values})
        task.project, task.array = workload.project, array
        task.spec = {**document, "name": name}
        if section_after := document.get("after"):
            task.spec["after"] = [_task_dependency(entry, index) for entry in section_after]
        if parameters[index]:
            task.spec["env"] = {**env, **parameters[index]}
        yield task


def _task_dependency(entry: Mapping[str, str], index: int) -> Mapping[str, str]:
    if "tasks" not in entry:
        return entry
    values = {key: value for key, value in entry.items() if key != "tasks"}
    return {**values, "workload": task_name(entry["workload"], index)}


def _submission_event(task: Workload, message: str, actor: Actor) -> Event:
    data: dict[str, Any] = {"array": str(task.array_id), "index": task.array_index, "attempt": task.attempt}
    return events.build("submitted", task, message, actor=actor.name, data=data)


def _name_taken_error(array: WorkloadArray, task: Workload) -> Conflict:
    error = name_taken_error(task, free="")
    problem = Problem(
        "name",
        f"gives a task the name {task.name}, which is in use",
        format_value(array.name),
        "another name",
    )
    return Conflict(error.detail, errors=[problem.to_dict()])


def check_indexes(existing: Sequence[int], wanted: Sequence[int]) -> None:
    """Raise Invalid if one of the `wanted` indexes has no task."""
    unknown = sorted(set(wanted) - set(existing))
    if unknown:
        allowed = f"indexes of its tasks, from {min(existing)} to {max(existing)}" if existing else "no index"
        raise Invalid([Problem("indexes", "names a task that does not exist", f"{unknown[0]}", allowed)])
