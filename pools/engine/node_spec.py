"""Minimum, ready threshold and maximum size of a pool, and the four notations for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value

FIELDS = ("min", "desired", "max")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Size of a pool.

    Without `max`, the size is fixed at `min`. `desired` is the ready threshold and defaults to `min`.
    """

    min: int
    max: int | None = None
    desired: int | None = None

    def __post_init__(self) -> None:
        problems = list(_problems(self.min, self.max, self.desired))
        if problems:
            raise Invalid(problems)

    @property
    def elastic(self) -> bool:
        return self.max is not None

    @property
    def ceiling(self) -> int:
        return self.min if self.max is None else self.max

    @property
    def ready_threshold(self) -> int:
        """Number of nodes that must be ready before the pool accepts pods."""
        return self.min if self.desired is None else self.desired

    @property
    def initial_nodes(self) -> int:
        """Number of nodes that a new pool orders. It is 0 if the minimum is 0."""
        return max(self.min, self.ready_threshold) if self.min > 0 else 0

    def clamp(self, count: int) -> int:
        return min(max(count, self.min), self.ceiling)


def parse_node_spec(value: Any) -> NodeSpec:
    """Return the NodeSpec for any of the four notations.

    The notations are a number, a pair of minimum and maximum, a mapping with min, max and desired, and a
    NodeSpec. Raises Invalid if the value has none of these notations or contradicts itself.
    """
    match value:
        case NodeSpec():
            return value
        case bool():
            pass
        case int():
            return NodeSpec(value)
        case [floor, ceiling]:
            return NodeSpec(floor, ceiling)
        case Mapping():
            unknown = sorted(str(key) for key in value if key not in FIELDS)
            if unknown:
                allowed = ", ".join(FIELDS)
                raise Invalid(Problem(f"nodes.{key}", "unknown key", allowed=allowed) for key in unknown)
            if "min" in value:
                return NodeSpec(value["min"], value.get("max"), value.get("desired"))
            raise Invalid([Problem("nodes.min", "is missing")])
    allowed = "a number, a pair of minimum and maximum, or min, max and desired"
    raise Invalid([Problem("nodes", "is not a number of nodes", format_value(value), allowed)])


def _problems(floor: object, ceiling: object, desired: object) -> list[Problem]:
    wrong = [
        Problem(f"nodes.{name}", "is not a whole number", format_value(value))
        for name, value in zip(FIELDS, (floor, desired, ceiling), strict=True)
        if not _is_whole(value) and not (value is None and name != "min")
    ]
    if wrong or not isinstance(floor, int):
        return wrong
    return [
        *_min_problems(floor, ceiling),
        *_max_problems(floor, ceiling),
        *_desired_problems(floor, ceiling, desired),
    ]


def _min_problems(floor: int, ceiling: object) -> list[Problem]:
    if floor < 0 or (floor == 0 and ceiling is None):
        allowed = "at least 1; 0 only with a max" if ceiling is None else "at least 0"
        return [Problem("nodes.min", "is too small", str(floor), allowed)]
    return []


def _max_problems(floor: int, ceiling: object) -> list[Problem]:
    if isinstance(ceiling, int) and ceiling < max(floor, 1):
        return [Problem("nodes.max", "is below nodes.min", str(ceiling), f"at least {max(floor, 1)}")]
    return []


def _desired_problems(floor: int, ceiling: object, desired: object) -> list[Problem]:
    if not isinstance(desired, int):
        return []
    lowest = 0 if floor == 0 else 1
    highest = ceiling if isinstance(ceiling, int) else floor
    if lowest <= desired <= highest:
        return []
    message = "is too small" if desired < lowest else "exceeds the size of the pool"
    return [Problem("nodes.desired", message, str(desired), f"{lowest} to {highest}")]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
