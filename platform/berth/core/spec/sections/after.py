"""The `after` section of a workload document: workloads that must end before this workload may start."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from berth.core.problems import Problem, format_value
from berth.core.spec.roles import Document
from berth.core.spec.values.texts import FREE_NAME_MAX, NAME, validate_name

DEPENDENCIES_MAX = 256
OLD_KEY = "depends_on"  # former name of the key `after`
DependencyState = Literal["completed", "failed", "any"]


class WorkloadReference(NamedTuple):
    """Workload or array, identified by name and project."""

    project: str
    name: str

    def __str__(self) -> str:
        return f"{self.project}/{self.name}"


def _validate_reference(text: str, info: ValidationInfo) -> str:
    if isinstance(info.context, dict) and info.context.get("free_names"):
        return validate_name(text, info)
    parts = text.split("/")
    if len(parts) > 2 or not all(NAME.fullmatch(part) for part in parts):
        allowed = "a workload or array name, or PROJECT/NAME"
        raise PydanticCustomError("reference", "is not a valid workload name", {"allowed": allowed})
    return text


Reference = Annotated[str, Field(min_length=1, max_length=FREE_NAME_MAX), AfterValidator(_validate_reference)]


class Dependency(Document):
    """Workload or array that must reach a final state before this workload may start.

    `workload` is NAME or PROJECT/NAME, and refers to the newest workload or array of that name. The state
    `any` includes cancelled workloads. With `tasks: same`, each task waits only for the task with the same
    index in the other array.
    """

    workload: Reference
    state: DependencyState = "completed"
    tasks: Literal["same"] | None = None

    def workload_reference(self, project: str) -> WorkloadReference:
        """Return the project and name of the awaited workload.

        If `workload` names no project, the result contains `project`.
        """
        other, slash, name = self.workload.rpartition("/")
        return WorkloadReference(other if slash else project, name)


Dependencies = Annotated[tuple[Dependency, ...], Field(max_length=DEPENDENCIES_MAX, strict=False)]


def after_problems(
    dependencies: Sequence[Dependency], *, name: str, project: str | None, is_array: bool
) -> Iterator[Problem]:
    """Yield the problems in the `after` section of the document `name`."""
    first: dict[str, int] = {}
    for number, dependency in enumerate(dependencies):
        path, reference = f"after[{number}]", dependency.workload
        if reference in (name, f"{project}/{name}"):
            yield Problem(
                f"{path}.workload", "refers to the workload itself", format_value(reference),
                "names of other workloads",
            )  # fmt: skip
        if first.setdefault(reference, number) != number:
            allowed = f"one entry per workload; after[{first[reference]}] names the same one"
            yield Problem(f"{path}.workload", "is listed twice", format_value(reference), allowed)
        if dependency.tasks is not None and not is_array:
            yield Problem(
                f"{path}.tasks", "needs an array", format_value(dependency.tasks), "a document with `array`"
            )


def replacement_for_old_key(value: Any) -> str:
    """Return the `after` section that replaces a `depends_on` list."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        names = ["NAME"]
    shown = ", ".join(f"{{workload: {name}}}" for name in names[:3])
    return f"after: [{shown}{', ...' if len(names) > 3 else ''}]"
