"""The array section of a workload document: many tasks from one document."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from berth.core.spec.roles import Document
from berth.core.spec.values.texts import Script, Text, Variable

TASKS_MAX = 10_000
INDEX_MAX = 999_999
PARAMETERS_MAX = 64
PARAMETER_LENGTH_MAX = 4096
VALUE_VARIABLE = "BERTH_ARRAY_VALUE"  # environment variable that is set if `values` lists plain values
TASK_COUNT, TASK_LIST, PARAMETER_TEXT, PARAMETER_MAPPING = "<count>", "<indexes>", "<value>", "<parameters>"
RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", re.ASCII)
METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")
RANGES_ALLOWED = f"an index such as 7, or a range such as 0-99 or 0-99:10, of indexes from 0 to {INDEX_MAX}"


def index_range(text: str) -> range | None:
    """Parse indexes such as `7`, `0-99` or `0-99:10`. Return None for other text."""
    match = RANGE.fullmatch(text)
    if match is None:
        return None
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    return range(first, last + 1, step) if first <= last and step else None


def _format_range(value: object) -> object:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or index_range(text) is None:
        raise PydanticCustomError("index", "is not a valid index or range", {"allowed": RANGES_ALLOWED})
    return text


def _format_parameter(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, str):
        return value
    allowed = "text, a finite number, true or false"
    raise PydanticCustomError("parameter", "is not a valid parameter value", {"allowed": allowed})


def _tasks_tag(value: object) -> str:
    return TASK_LIST if isinstance(value, list | tuple) else TASK_COUNT


def _value_tag(value: object) -> str:
    return PARAMETER_MAPPING if isinstance(value, Mapping) else PARAMETER_TEXT


def _validate_metric_name(name: str) -> str:
    if METRIC.fullmatch(name) is None:
        allowed = "a name of at most 64 letters, digits and _./-, for example loss"
        raise PydanticCustomError("metric", "is not a valid metric name", {"allowed": allowed})
    return name


MetricName = Annotated[Text, AfterValidator(_validate_metric_name)]
IndexRange = Annotated[
    str, BeforeValidator(_format_range), WithJsonSchema({"type": ["integer", "string"]}, mode="validation")
]
Indexes = Annotated[tuple[IndexRange, ...], Field(min_length=1, max_length=TASKS_MAX, strict=False)]
Parameter = Annotated[
    Script,
    Field(max_length=PARAMETER_LENGTH_MAX),
    BeforeValidator(_format_parameter),
    WithJsonSchema({"type": ["string", "number", "boolean"]}, mode="validation"),
]
Parameters = Annotated[dict[Variable, Parameter], Field(min_length=1, max_length=PARAMETERS_MAX)]
Tasks = Annotated[
    Annotated[int, Field(ge=1, le=TASKS_MAX), Tag(TASK_COUNT)] | Annotated[Indexes, Tag(TASK_LIST)],
    Discriminator(_tasks_tag),
]
Value = Annotated[
    Annotated[Parameter, Tag(PARAMETER_TEXT)] | Annotated[Parameters, Tag(PARAMETER_MAPPING)],
    Discriminator(_value_tag),
]
MatrixValues = Annotated[tuple[Parameter, ...], Field(min_length=1, max_length=TASKS_MAX, strict=False)]
Values = Annotated[tuple[Value, ...], Field(min_length=1, max_length=TASKS_MAX, strict=False)]
Matrix = Annotated[dict[Variable, MatrixValues], Field(min_length=1, max_length=PARAMETERS_MAX)]


class StopRule(Document):
    """Median stopping: cancel tasks that are worse than the median of the others at the same step.

    It applies from step `after_steps` on, once `min_tasks` other tasks have reached the same step.
    """

    metric: MetricName
    goal: Literal["min", "max"] = "min"
    after_steps: Annotated[int, Field(ge=0, le=2**53)]
    min_tasks: Annotated[int, Field(ge=1, le=TASKS_MAX)] = 3


class ArraySpec(Document):
    """Tasks of an array, defined by one of `tasks`, `values` and `matrix`.

    `tasks` is a number, or a list of indexes and ranges. Each item of `values` or combination of `matrix` is
    a task, and a list in `tasks` may select some of them. At most `max_running` tasks run at the same time.
    """

    tasks: Tasks | None = None
    values: Values | None = None
    matrix: Matrix | None = None
    max_running: Annotated[int, Field(ge=1, le=TASKS_MAX)] | None = None
    stop: StopRule | None = None

    @property
    def size(self) -> int:
        """Number of tasks. An index that is listed twice counts twice."""
        if isinstance(self.tasks, tuple):
            return sum(len(part) for part in to_ranges(self.tasks))
        return self.tasks or self.parameter_sets

    @property
    def parameter_sets(self) -> int:
        """Number of items in `values` or combinations in `matrix`, including those that are not selected."""
        if self.matrix is not None:
            return math.prod(len(values) for values in self.matrix.values())
        return len(self.values or ())

    @property
    def index_max(self) -> int:
        if isinstance(self.tasks, tuple):
            return max(part[-1] for part in to_ranges(self.tasks))
        return self.size - 1

    @cached_property
    def indexes(self) -> Sequence[int]:
        """Indexes of the tasks, in ascending order."""
        if isinstance(self.tasks, tuple):
            return expand(self.tasks)
        return range(self.size)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the variables that `values` or `matrix` sets, without duplicates."""
        if self.matrix is not None:
            return tuple(self.matrix)
        mappings = [value for value in self.values or () if not isinstance(value, str)]
        return tuple(dict.fromkeys(name for mapping in mappings for name in mapping))

    def parameters(self) -> dict[int, Mapping[str, str]]:
        """Return the variables of each task, keyed by task index.

        In a matrix, the last name varies fastest.
        """
        sets: Sequence[Mapping[str, str]] = ()
        if self.matrix is not None:
            rows = product(*self.matrix.values())
            sets = [dict(zip(self.matrix, row, strict=True)) for row in rows]
        elif self.values is not None:
            sets = [{VALUE_VARIABLE: value} if isinstance(value, str) else value for value in self.values]
        return {index: sets[index] if sets else {} for index in self.indexes}


def to_ranges(parts: Iterable[str]) -> list[range]:
    """Convert validated indexes and ranges to `range` objects."""
    return [part for text in parts if (part := index_range(text)) is not None]


def validate_index_count(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return `parts`, or raise an error if they contain more tasks than an array may have."""
    if sum(map(len, to_ranges(parts))) > TASKS_MAX:
        raise PydanticCustomError(
            "indexes", "contains too many tasks", {"allowed": f"at most {TASKS_MAX} indexes"}
        )
    return parts


def expand(parts: Iterable[str]) -> tuple[int, ...]:
    """Expand indexes and ranges to sorted indexes without duplicates."""
    return tuple(sorted({index for part in to_ranges(parts) for index in part}))


def compress(indexes: Iterable[int]) -> str:
    """Return indexes as text such as `0-9,12`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def parse_indexes(text: str) -> tuple[str, ...]:
    """Split text such as `0-9,12` into indexes and ranges.

    Raises ValueError with the first invalid part.
    """
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        if index_range(part) is None:
            raise ValueError(part)
    return parts


def parse_array_notation(text: str) -> dict[str, Any]:
    """Parse Slurm's notation, such as `0-999%50`, into an array section. Raises ValueError."""
    tasks, percent, limit = text.partition("%")
    section: dict[str, Any] = {"tasks": list(parse_indexes(tasks))}
    if percent:
        if not (limit.isascii() and limit.isdigit()):
            raise ValueError(f"%{limit}")
        section["max_running"] = int(limit)
    return section
