"""Validation rules for a document's array section."""

from collections.abc import Iterator

from berth.core.problems import Problem, format_value
from berth.core.spec.sections.arrays import TASKS_MAX, VALUE_VARIABLE, ArraySpec
from berth.core.spec.values.texts import ENV_MAX, is_set_by_berth
from berth.core.spec.workload import WorkloadSpec

NAME_MAX = 63
KINDS = ("training", "elastic")
EVENTS = ("completed", "failed", "cancelled", "unschedulable")  # events for which arrays send notifications
SOURCES = ("tasks", "values", "matrix")


def task_name(array: str, index: int) -> str:
    """Return the name of an array task. It must be unique among the project's live workloads."""
    return f"{array}-{index}"


def array_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    """Yield the problems in the document's array section, if any."""
    array = spec.array
    if array is None:
        return
    sources = [name for name in SOURCES if getattr(array, name) is not None]
    selects = isinstance(array.tasks, tuple) and len(sources) > 1  # `tasks` selects some of the parameters
    if selects:
        sources.remove("tasks")
    if len(sources) != 1:
        yield Problem(
            "array", "needs one source of tasks", ", ".join(sources), f"one of {', '.join(SOURCES)}"
        )
        return
    if (size := max(array.size, array.parameter_sets)) > TASKS_MAX:
        yield Problem(f"array.{sources[0]}", "has too many tasks", f"{size}", f"at most {TASKS_MAX}")
        return
    if selects and array.index_max >= array.parameter_sets:
        allowed = f"indexes from 0 to {array.parameter_sets - 1}"
        problem = f"selects a task that {sources[0]} does not define"
        yield Problem("array.tasks", problem, f"{array.index_max}", allowed)
        return
    if len(longest := task_name(spec.name, array.index_max)) > NAME_MAX:
        characters = NAME_MAX - len(longest) + len(spec.name)
        allowed = f"at most {characters} characters, so that {longest} is a valid name"
        yield Problem("name", "is too long for the array's tasks", format_value(spec.name), allowed)
    if spec.kind not in KINDS:
        yield Problem("array", f"cannot be combined with kind {spec.kind}", "", f"kind {' or '.join(KINDS)}")
    for number, notification in enumerate(spec.notifications):
        for event in notification.on:
            if event not in EVENTS:
                path = f"notifications[{number}].on"
                yield Problem(path, "is not sent for arrays", format_value(event), ", ".join(EVENTS))
    if array.stop is not None and array.stop.min_tasks >= array.size:
        allowed = f"at most {array.size - 1}, because a task is compared with others"
        yield Problem(
            "array.stop.min_tasks", "is too large for the array", f"{array.stop.min_tasks}", allowed
        )
    yield from _parameter_problems(spec, array, f"array.{sources[0]}")


def _parameter_problems(spec: WorkloadSpec, array: ArraySpec, path: str) -> Iterator[Problem]:
    names = array.parameter_names
    secrets = {use.env for role in spec.all_roles for use in spec.role_secrets(role)}
    variables = {name for role in spec.all_roles for name in spec.role_env(role)}
    for name in names:
        received, allowed = format_value(name), "another variable name"
        if is_set_by_berth(name):
            yield Problem(path, "names a variable that Berth sets", received, allowed)
        elif name in variables:
            yield Problem(path, "names a variable that env sets", received, allowed)
        elif name in secrets:
            yield Problem(path, "names the variable of a secret", received, allowed)
    if (size := _max_parameter_bytes(array)) > ENV_MAX:
        yield Problem(
            path, "is too large", f"{size} bytes in one task", f"at most {ENV_MAX} bytes in each task"
        )


def _max_parameter_bytes(array: ArraySpec) -> int:
    if array.matrix is not None:
        return sum(
            max(_variable_size(name, value) for value in values) for name, values in array.matrix.items()
        )
    values = array.values or ()
    mappings = ({VALUE_VARIABLE: value} if isinstance(value, str) else value for value in values)
    return max((sum(_variable_size(*item) for item in mapping.items()) for mapping in mappings), default=0)


def _variable_size(name: str, value: str) -> int:
    return len(f"{name}={value}".encode()) + 1
