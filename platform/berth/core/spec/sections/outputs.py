"""The `outputs` section of a workload document: the files to store after a pod ends."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from berth.core.problems import Problem, format_value
from berth.core.spec.sections.code import NAME_MAX, PATH_MAX, nesting_problem, path_problem
from berth.core.spec.values.texts import Text

OUTPUTS_MAX = 32
ALLOWED = (
    f"a path such as results or logs/loss.csv, of at most {PATH_MAX} bytes and {NAME_MAX} bytes per name"
)


def _validate_path(path: str) -> str:
    path = path.rstrip("/") or path
    if problem := path_problem(path):
        reason = "is outside the pod's directory" if problem == "is outside the tree" else problem
        raise PydanticCustomError("output_path", "{reason}", {"reason": reason, "allowed": ALLOWED})
    return path


OutputPath = Annotated[Text, Field(min_length=1), AfterValidator(_validate_path)]
Outputs = Annotated[tuple[OutputPath, ...], Field(max_length=OUTPUTS_MAX, strict=False)]


def output_problems(paths: Sequence[str], kind: str) -> Iterator[Problem]:
    """Yield the problems in the `outputs` section."""
    path, reason = nesting_problem(paths)
    if path:
        reason = "is inside another path" if reason.startswith("is below") else reason
        yield Problem("outputs", f"has a path that {reason}", format_value(path), "distinct paths")
    if paths and kind == "service":
        yield Problem("outputs", "cannot be used by services, which do not end", kind, "other kinds")
