"""Convert the values of quota grid cells to text and back."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.values.amounts import MILLI
from projects.services.quotas.values import MAX_RANK, MAX_WEIGHT

UNLIMITED, INHERITED, NO_QUOTA = "∞", "inherited", "\N{EN DASH}"
NO_QUOTA_WORDS = (NO_QUOTA, "-", "—")
UNLIMITED_WORDS = ("", UNLIMITED, "unlimited", "none", "null")
AMBIGUOUS = ("", "none")  # input that could mean either unlimited or no quota
YES, NO = ("yes", "true", "1"), ("no", "false", "0")
THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class CellField:
    """Field of the quota grid.

    `kind` is amount, whole, weight, rank or flag, and `path` is the field's key in a quota document, such as
    `limit.cpu`. If `adds_up` is set, the department's value is shown next to the sum over its projects. A
    field with `is_rare` is shown only on request, or if a quota uses it.
    """

    title: str
    unit: str
    column: str
    kind: str
    path: str
    default: Any = None
    adds_up: bool = False
    is_default: bool = False
    is_rare: bool = False

    @property
    def head(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def default_text(self) -> str:
        """Text of the field's default value in a new quota."""
        return format_cell_value(self, self.default)


FIELDS: Mapping[str, CellField] = {
    "gpu": CellField("Quota", "GPUs", "gpu_milli", "amount", "gpu", 0, adds_up=True, is_default=True),
    "limit_gpu": CellField("Limit", "GPUs", "limit_gpu_milli", "amount", "limit.gpu", is_default=True),
    "weight": CellField("Weight", "", "weight_gpu", "weight", "weight", 1.0, is_default=True, is_rare=True),
    "rank": CellField("Rank", "", "rank", "rank", "rank", is_default=True, is_rare=True),
    "cpu": CellField("Quota", "cores", "cpu_milli", "amount", "cpu", adds_up=True),
    "limit_cpu": CellField("Limit", "cores", "limit_cpu_milli", "amount", "limit.cpu"),
    "memory_mib": CellField("Quota", "MiB", "memory_mib", "whole", "memory_mib", adds_up=True),
    "limit_memory_mib": CellField("Limit", "MiB", "limit_memory_mib", "whole", "limit.memory_mib"),
    "over_quota": CellField("Over quota", "", "over_quota", "flag", "over_quota", True),
}
COLUMNS = tuple(field.column for field in FIELDS.values())
WEIGHTS = ("weight_gpu", "weight_cpu", "weight_memory")


def format_cell_value(field: CellField, value: Any) -> str:
    """Format a value as it is shown in its cell and copied to a spreadsheet."""
    if field.kind == "flag":
        return "yes" if value else "no"
    if value is None:
        return INHERITED if field.kind == "rank" else UNLIMITED
    if field.kind == "amount":
        return f"{value / MILLI:.3f}".rstrip("0").rstrip(".")
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def parse_cell(field: CellField, text: str) -> Any:
    """Convert a cell's text to a value in the service's units. Invalid text is returned unchanged."""
    word = text.strip().lower()
    if field.kind == "flag":
        return True if word in YES else False if word in NO else text
    if field.adds_up and word in AMBIGUOUS:
        return text
    if word in (*UNLIMITED_WORDS, INHERITED, "own") and field.kind != "weight":
        return None
    number = _parse_number(word)
    if number is None:
        return text
    return int(number) if field.kind in ("rank", "whole") and number.is_integer() else number


def allowed_text(field: CellField) -> str:
    """Return the values that a cell allows, such as "a number from 0 to 1,000". It completes "Enter ..."."""
    if field.kind == "flag":
        return "yes or no"
    if field.kind == "rank":
        return f"a whole number from -{MAX_RANK} to {MAX_RANK}, or {INHERITED}"
    if field.kind == "weight":
        return f"a number from 0 to {MAX_WEIGHT:,.0f}"
    if field.kind == "whole":
        return f"a whole number from 0, such as 1024, or {UNLIMITED} for unlimited"
    return f"a number from 0 in steps of 0.001, such as 8 or 0.5, or {UNLIMITED} for unlimited"


def removes_quota(text: str) -> bool:
    """Return whether the text removes the quota, which differs from setting it to 0."""
    return text.strip() in NO_QUOTA_WORDS


def build_document(inputs: Mapping[str, str], *, equal_weights: bool) -> dict[str, Any]:
    """Convert the values entered in one quota's cells to a quota document.

    If `equal_weights` is False, the weight applies only to GPUs.
    """
    values: dict[str, Any] = {}
    for name, text in inputs.items():
        value, (head, _, inner) = parse_cell(FIELDS[name], text), FIELDS[name].path.partition(".")
        if inner:
            values.setdefault(head, {})[inner] = value
        elif name == "weight" and not equal_weights:
            values[head] = {"gpu": value}
        else:
            values[head] = value
    return values


def field_for_path(path: str, inputs: Iterable[str]) -> str:
    """Return the field that a service error refers to. If there is none, return the first field that was
    entered.
    """
    names = {field.path: name for name, field in FIELDS.items()} | {"weight.gpu": "weight"}
    return names.get(path) or next(iter(inputs), "gpu")


def _parse_number(word: str) -> float | None:
    """Parse a number, including spreadsheet formats such as 1,500 or 1 500. Return None for other text."""
    normalized = word.replace("\N{NO-BREAK SPACE}", "").replace(" ", "")
    normalized = normalized.replace(",", "") if THOUSANDS.fullmatch(normalized) else normalized
    try:
        return float(normalized)
    except ValueError:
        return None
