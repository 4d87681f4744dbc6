"""Convert quotas between documents and columns, and check their values."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from berth.core.amounts import MILLI, RESOURCES
from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from projects.models import Quota

MOST = 10**12


COLUMNS = {"gpu": "gpu_milli", "cpu": "cpu_milli", "memory_mib": "memory_mib"}


WEIGHTS = {"gpu": "weight_gpu", "cpu": "weight_cpu", "memory_mib": "weight_memory"}


WEIGHT_MOST = 1_000_000.0


RANK_MOST = 1000


KEYS = (*RESOURCES, "limit", "weight", "over_quota", "rank")


SCALE = {"gpu": MILLI, "cpu": MILLI, "memory_mib": 1}


Columns = dict[str, Any]


def values_of(quota: Quota) -> dict[str, Any]:
    """The quota in the words and units of documents."""
    return {
        **{name: _said(name, getattr(quota, column)) for name, column in COLUMNS.items()},
        "limit": {name: _said(name, getattr(quota, f"limit_{column}")) for name, column in COLUMNS.items()},
        "weight": {name: getattr(quota, column) for name, column in WEIGHTS.items()},
        "over_quota": quota.over_quota,
        "rank": quota.rank,
    }


def columns_of(values: Mapping[str, Any]) -> Columns:
    """The columns for a document's values; raises Invalid with every fault."""
    problems: list[Problem] = []
    columns: Columns = {}
    for key, given in values.items():
        read = _READERS.get(key)
        if read is None:
            problems.append(Problem(str(key), "unknown key", shown(given), ", ".join(KEYS)))
        else:
            read(key, given, columns, problems)
    if problems:
        raise Invalid(problems)
    return columns


def _amount(key: str, given: Any, columns: Columns, problems: list[Problem]) -> None:
    columns[COLUMNS[key]] = _counted(key, key, given, problems)


def _limit(key: str, given: Any, columns: Columns, problems: list[Problem]) -> None:
    if given is None:
        given = dict.fromkeys(RESOURCES)
    if not isinstance(given, Mapping):
        problems.append(Problem(key, "is not keys and values", shown(given), ", ".join(RESOURCES)))
        return
    for name, value in given.items():
        if name not in COLUMNS:
            problems.append(Problem(f"{key}.{name}", "unknown key", shown(value), ", ".join(RESOURCES)))
        else:
            columns[f"limit_{COLUMNS[name]}"] = _counted(f"{key}.{name}", name, value, problems)


def _weight(key: str, given: Any, columns: Columns, problems: list[Problem]) -> None:
    each = given if isinstance(given, Mapping) else dict.fromkeys(RESOURCES, given)
    for name, value in each.items():
        path = f"{key}.{name}" if isinstance(given, Mapping) else key
        if name not in WEIGHTS:
            problems.append(Problem(path, "unknown key", shown(value), ", ".join(RESOURCES)))
        elif not _is_number(value) or not 0 <= value <= WEIGHT_MOST:
            problems.append(Problem(path, "is not a weight", shown(value), f"0 to {WEIGHT_MOST:.0f}"))
            if not isinstance(given, Mapping):
                return
        else:
            columns[WEIGHTS[name]] = float(value)


def _flag(key: str, given: Any, columns: Columns, problems: list[Problem]) -> None:
    if isinstance(given, bool):
        columns[key] = given
    else:
        problems.append(Problem(key, "is neither true nor false", shown(given), "true, false"))


def _rank(key: str, given: Any, columns: Columns, problems: list[Problem]) -> None:
    whole = isinstance(given, int) and not isinstance(given, bool)
    if given is None or (whole and -RANK_MOST <= given <= RANK_MOST):
        columns[key] = given
    else:
        problems.append(Problem(key, "is not a rank", shown(given), f"-{RANK_MOST} to {RANK_MOST}, or null"))


_READERS: dict[str, Callable[[str, Any, Columns, list[Problem]], None]] = {
    **dict.fromkeys(RESOURCES, _amount),
    "limit": _limit,
    "weight": _weight,
    "over_quota": _flag,
    "rank": _rank,
}


def _counted(path: str, resource: str, given: Any, problems: list[Problem]) -> int | None:
    """Thousandths or MiB; null is unlimited."""
    if given is None:
        return None
    scale = SCALE[resource]
    allowed = f"0 to {MOST // scale} in steps of {'0.001' if scale == MILLI else '1'}, or null for unlimited"
    if not _is_number(given) or not 0 <= given * scale <= MOST:
        problems.append(Problem(path, "is not an amount", shown(given), allowed))
        return None
    counted = round(given * scale)
    if abs(counted - given * scale) > 1e-6:
        problems.append(Problem(path, "is finer than can be counted", shown(given), allowed))
    return counted


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def faults_of(quota: Quota) -> list[Problem]:
    """What its values together may not be."""
    found = []
    for name, column in COLUMNS.items():
        amount, limit = getattr(quota, column), getattr(quota, f"limit_{column}")
        if amount is not None and limit is not None and amount > limit:
            given, most = shown(_said(name, amount)), f"at most {_said(name, limit)}"
            found.append(Problem(name, "is above its own limit", given, most))
    return found


def _said(resource: str, amount: int | None) -> float | int | None:
    if amount is None or SCALE[resource] == 1:
        return amount
    return amount // MILLI if amount % MILLI == 0 else amount / MILLI
