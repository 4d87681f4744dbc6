"""Parse a pool's minimum size, ready threshold and maximum size, in any of four notations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value

FIELDS = ("min", "desired", "max")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Minimum and maximum number of nodes in a pool.

    Without `max`, the size is fixed at `min`. `desired` is the ready threshold, by default `min`.
    """

    min: int
    max: int | None = None
    desired: int | None = None

    def __post_init__(self) -> None:
        problems = list(_node_spec_problems(self.min, self.max, self.desired))
        if problems:
            raise Invalid(problems)

    @property
    def is_elastic(self) -> bool:
        return self.max is not None

    @property
    def max_nodes(self) -> int:
        return self.min if self.max is None else self.max

    @property
    def ready_threshold(self) -> int:
        """Number of nodes that must be ready before the pool accepts pods."""
        return self.min if self.desired is None else self.desired

    @property
    def initial_nodes(self) -> int:
        """Number of nodes that a new pool requests. It is 0 if the minimum is 0."""
        return max(self.min, self.ready_threshold) if self.min > 0 else 0

    def clamp(self, count: int) -> int:
        return min(max(count, self.min), self.max_nodes)


def parse_node_spec(value: Any) -> NodeSpec:
    """Parse a number, a (min, max) pair, a mapping with min, max and desired, or a NodeSpec.

    Raises Invalid.
    """
    match value:
        case NodeSpec():
            return value
        case bool():
            pass
        case int():
            return NodeSpec(value)
        case [minimum, maximum]:
            return NodeSpec(minimum, maximum)
        case Mapping():
            unknown = sorted(str(key) for key in value if key not in FIELDS)
            if unknown:
                allowed = ", ".join(FIELDS)
                raise Invalid(Problem(f"nodes.{key}", "unknown key", allowed=allowed) for key in unknown)
            if "min" in value:
                return NodeSpec(value["min"], value.get("max"), value.get("desired"))
            raise Invalid([Problem("nodes.min", "is missing")])
    allowed = "a number, a pair of minimum and maximum, or min, max and desired"
    raise Invalid([Problem("nodes", "is not a valid number of nodes", format_value(value), allowed)])


def _node_spec_problems(minimum: object, maximum: object, desired: object) -> list[Problem]:
    wrong = [
        Problem(f"nodes.{name}", "is not a whole number", format_value(value))
        for name, value in zip(FIELDS, (minimum, desired, maximum), strict=True)
        if not _is_whole_number(value) and not (value is None and name != "min")
    ]
    if wrong or not isinstance(minimum, int):
        return wrong
    return [
        *_problems_with_min(minimum, maximum),
        *_max_node_problems(minimum, maximum),
        *_desired_node_problems(minimum, maximum, desired),
    ]


def _problems_with_min(minimum: int, maximum: object) -> list[Problem]:
    if minimum < 0 or (minimum == 0 and maximum is None):
        allowed = "at least 1; 0 only with a max" if maximum is None else "at least 0"
        return [Problem("nodes.min", "is too small", str(minimum), allowed)]
    return []


def _max_node_problems(minimum: int, maximum: object) -> list[Problem]:
    if isinstance(maximum, int) and maximum < max(minimum, 1):
        return [Problem("nodes.max", "is below nodes.min", str(maximum), f"at least {max(minimum, 1)}")]
    return []


def _desired_node_problems(minimum: int, maximum: object, desired: object) -> list[Problem]:
    if not isinstance(desired, int):
        return []
    lowest = 0 if minimum == 0 else 1
    highest = maximum if isinstance(maximum, int) else minimum
    if lowest <= desired <= highest:
        return []
    message = "is too small" if desired < lowest else "exceeds the size of the pool"
    return [Problem("nodes.desired", message, str(desired), f"{lowest} to {highest}")]


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
