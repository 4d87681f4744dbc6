"""Convert quotas between documents and columns, and check their values."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from berth.core.values.amounts import MILLI, RESOURCES
from projects.models import Quota

MAX_AMOUNT = 10**12


COLUMNS = {"gpu": "gpu_milli", "cpu": "cpu_milli", "memory_mib": "memory_mib"}


WEIGHTS = {"gpu": "weight_gpu", "cpu": "weight_cpu", "memory_mib": "weight_memory"}


MAX_WEIGHT = 1_000_000.0


MAX_RANK = 1000


KEYS = (*RESOURCES, "limit", "weight", "over_quota", "rank")


SCALE = {"gpu": MILLI, "cpu": MILLI, "memory_mib": 1}


UNITS = {"gpu": "GPUs", "cpu": "CPU cores", "memory_mib": "MiB"}


Columns = dict[str, Any]


def quota_values(quota: Quota) -> dict[str, Any]:
    """Return the quota's values with the keys and units of documents."""
    return {
        **{name: _to_document(name, getattr(quota, column)) for name, column in COLUMNS.items()},
        "limit": {
            name: _to_document(name, getattr(quota, f"limit_{column}")) for name, column in COLUMNS.items()
        },
        "weight": {name: getattr(quota, column) for name, column in WEIGHTS.items()},
        "over_quota": quota.over_quota,
        "rank": quota.rank,
    }


def parse_columns(values: Mapping[str, Any]) -> Columns:
    """Convert a document's values to columns. Raises Invalid, listing every problem."""
    problems: list[Problem] = []
    columns: Columns = {}
    for key, value in values.items():
        parse = _PARSERS.get(key)
        if parse is None:
            problems.append(Problem(str(key), "unknown key", format_value(value), ", ".join(KEYS)))
        else:
            parse(key, value, columns, problems)
    if problems:
        raise Invalid(problems)
    return columns


def _parse_amount(key: str, value: Any, columns: Columns, problems: list[Problem]) -> None:
    columns[COLUMNS[key]] = _to_units(key, key, value, problems)


def _parse_limit(key: str, value: Any, columns: Columns, problems: list[Problem]) -> None:
    if value is None:
        value = dict.fromkeys(RESOURCES)
    if not isinstance(value, Mapping):
        problems.append(Problem(key, "is not a mapping", format_value(value), ", ".join(RESOURCES)))
        return
    for name, amount_value in value.items():
        if name not in COLUMNS:
            problems.append(
                Problem(f"{key}.{name}", "unknown key", format_value(amount_value), ", ".join(RESOURCES))
            )
        else:
            columns[f"limit_{COLUMNS[name]}"] = _to_units(f"{key}.{name}", name, amount_value, problems)


def _parse_weight(key: str, value: Any, columns: Columns, problems: list[Problem]) -> None:
    weights = value if isinstance(value, Mapping) else dict.fromkeys(RESOURCES, value)
    for name, amount_value in weights.items():
        path = f"{key}.{name}" if isinstance(value, Mapping) else key
        if name not in WEIGHTS:
            problems.append(Problem(path, "unknown key", format_value(amount_value), ", ".join(RESOURCES)))
        elif not _is_number(amount_value) or not 0 <= amount_value <= MAX_WEIGHT:
            problems.append(
                Problem(path, "is not a valid weight", format_value(amount_value), f"0 to {MAX_WEIGHT:.0f}")
            )
            if not isinstance(value, Mapping):
                return
        else:
            columns[WEIGHTS[name]] = float(amount_value)


def _parse_flag(key: str, value: Any, columns: Columns, problems: list[Problem]) -> None:
    if isinstance(value, bool):
        columns[key] = value
    else:
        problems.append(Problem(key, "is not a boolean", format_value(value), "true, false"))


def _parse_rank(key: str, value: Any, columns: Columns, problems: list[Problem]) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if value is None or (is_whole and -MAX_RANK <= value <= MAX_RANK):
        columns[key] = value
    else:
        problems.append(
            Problem(key, "is not a valid rank", format_value(value), f"-{MAX_RANK} to {MAX_RANK}, or null")
        )


_PARSERS: dict[str, Callable[[str, Any, Columns, list[Problem]], None]] = {
    **dict.fromkeys(RESOURCES, _parse_amount),
    "limit": _parse_limit,
    "weight": _parse_weight,
    "over_quota": _parse_flag,
    "rank": _parse_rank,
}


def _to_units(path: str, resource: str, value: Any, problems: list[Problem]) -> int | None:
    """Return the amount in thousandths of a GPU or CPU, or in MiB. None means unlimited."""
    if value is None:
        return None
    scale = SCALE[resource]
    allowed = (
        f"0 to {MAX_AMOUNT // scale} in steps of {'0.001' if scale == MILLI else '1'}, or null for unlimited"
    )
    if not _is_number(value) or not 0 <= value * scale <= MAX_AMOUNT:
        problems.append(Problem(path, "is not a valid amount", format_value(value), allowed))
        return None
    units = round(value * scale)
    if abs(units - value * scale) > 1e-6:
        problems.append(Problem(path, "has too many decimals", format_value(value), allowed))
    return units


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def value_problems(quota: Quota) -> list[Problem]:
    """Return a problem for each quota amount that exceeds the limit of the same resource."""
    problems = []
    for name, column in COLUMNS.items():
        amount, limit = getattr(quota, column), getattr(quota, f"limit_{column}")
        if amount is not None and limit is not None and amount > limit:
            value, maximum = format_value(_to_document(name, amount)), _to_document(name, limit)
            message = f"exceeds its limit of {maximum} {UNITS[name]}"
            problems.append(Problem(name, message, value, f"at most {maximum}, or a higher limit"))
    return problems


def _to_document(resource: str, amount: int | None) -> float | int | None:
    if amount is None or SCALE[resource] == 1:
        return amount
    return amount // MILLI if amount % MILLI == 0 else amount / MILLI
