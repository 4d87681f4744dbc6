"""Validate, normalize and describe disruption budgets."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.core.values.durations import format_duration, parse_duration
from pools.engine.budgets import UNLIMITED, Allowance, Budget, DisruptionReason, compute_allowance
from pools.engine.schedule import InvalidSchedule, parse_schedule
from pools.models import Node, NodePool
from pools.models.node import PENDING, USABLE

KEYS = ("nodes", "reasons", "schedule", "duration", "zone")
BUDGETS_MAX = 50
INT_MAX = 2**31 - 1
DURATION_MIN, DURATION_MAX = 60, 31 * 24 * 3600
PERCENT = re.compile(r"(\d{1,3})%", re.ASCII)
NODES_ALLOWED = 'a number of nodes, or a percentage such as "10%"'
DURATION_ALLOWED = f'{DURATION_MIN} to {DURATION_MAX} seconds, or a duration such as "8h" or "1h30m"'

StoredBudget = dict[str, Any]


def normalize_budgets(budgets: object) -> list[StoredBudget]:
    """Return the disruption budgets in the stored format, with durations in seconds. Raises Invalid."""
    if not isinstance(budgets, list | tuple):
        allowed = "[] for none, or a list of budgets"
        raise Invalid(
            [Problem("disruption_budgets", "is not a list of budgets", format_value(budgets), allowed)]
        )
    if len(budgets) > BUDGETS_MAX:
        raise Invalid(
            [
                Problem(
                    "disruption_budgets", "has too many entries", str(len(budgets)), f"at most {BUDGETS_MAX}"
                )
            ]
        )
    problems = [
        problem
        for i, entry in enumerate(budgets)
        for problem in _budget_problems(f"disruption_budgets[{i}]", entry)
    ]
    if problems:
        raise Invalid(problems)
    return [_normalize_budget(entry) for entry in budgets]


def parse_budgets(pool: NodePool) -> tuple[Budget, ...]:
    return tuple(_parse_budget(entry) for entry in pool.disruption_budgets)


def drain_allowance(pool: NodePool, nodes: Iterable[Node], now: datetime) -> Allowance:
    """Return how many nodes may be drained now for each reason. Budgets do not apply to an expired pool."""
    if not pool.disruption_budgets or (pool.expires_at is not None and now >= pool.expires_at):
        return UNLIMITED
    states = [node.state for node in nodes]
    unavailable = sum(state not in USABLE and state not in PENDING for state in states)
    return compute_allowance(parse_budgets(pool), len(states), unavailable, now)


def describe_budget(budget: Budget, now: datetime) -> str:
    """Return a phrase that describes a budget, including the end of its current window, if any."""
    until = budget.active_until(now)
    return budget.text + (f", until {until:%Y-%m-%d %H:%M} UTC" if until else "")


def summarize_raw_budget(entry: Mapping[str, Any]) -> str:
    nodes, reasons = entry["nodes"], entry.get("reasons") or ()
    limit = (
        f"{nodes} of the nodes" if isinstance(nodes, str) else "1 node" if nodes == 1 else f"{nodes} nodes"
    )
    cause = f" if {' or '.join(reasons)}" if reasons else ""
    if not entry.get("schedule"):
        return f"at most {limit} at a time{cause}"
    zone = entry.get("zone", "UTC")
    duration = format_duration(entry["duration"])
    return f"at most {limit} at a time{cause}, from {entry['schedule']} ({zone}) for {duration}"


def _parse_budget(entry: Mapping[str, Any]) -> Budget:
    nodes = entry["nodes"]
    return Budget(
        nodes=nodes if isinstance(nodes, int) else None,
        percent=int(nodes.removesuffix("%")) if isinstance(nodes, str) else None,
        reasons=frozenset(map(DisruptionReason, entry.get("reasons") or DisruptionReason)),
        schedule=parse_schedule(entry["schedule"]) if entry.get("schedule") else None,
        duration=timedelta(seconds=entry.get("duration") or 0),
        zone=_parse_zone(entry.get("zone", "UTC")) or UTC,
        text=summarize_raw_budget(entry),
    )


def _normalize_budget(entry: Mapping[str, Any]) -> StoredBudget:
    budget = {key: entry[key] for key in KEYS if entry.get(key) not in (None, "", [], ())}
    if isinstance(nodes := budget["nodes"], str) and nodes.isdigit():
        budget["nodes"] = int(nodes)
    if "duration" in budget:
        budget["duration"] = _parse_duration(budget["duration"])
    if "reasons" in budget:
        budget["reasons"] = sorted(set(budget["reasons"]))
    return budget


def _budget_problems(path: str, entry: object) -> Iterator[Problem]:
    if not isinstance(entry, Mapping):
        yield Problem(path, "is not a valid disruption budget", format_value(entry), ", ".join(KEYS))
        return
    for key in entry.keys() - set(KEYS):
        yield Problem(f"{path}.{key}", "unknown key", allowed=suggest(str(key), KEYS))
    if entry.get("nodes") is None:
        yield Problem(f"{path}.nodes", "is missing", allowed=NODES_ALLOWED)
    elif not _is_node_count(entry["nodes"]):
        yield Problem(
            f"{path}.nodes", "is not a valid number of nodes", format_value(entry["nodes"]), NODES_ALLOWED
        )
    yield from _reason_problems(path, entry.get("reasons"))
    yield from _window_problems(path, entry)


def _is_node_count(nodes: object) -> bool:
    if isinstance(nodes, str):
        percent = PERCENT.fullmatch(nodes)
        if percent is not None:
            return int(percent[1]) <= 100
        return nodes.isascii() and nodes.isdigit() and len(nodes) < 10
    return isinstance(nodes, int) and not isinstance(nodes, bool) and 0 <= nodes <= INT_MAX


def _reason_problems(path: str, reasons: object) -> Iterator[Problem]:
    allowed = ", ".join(DisruptionReason)
    if reasons is None:
        return
    if not isinstance(reasons, list | tuple):
        yield Problem(
            f"{path}.reasons", "is not a list", format_value(reasons), f"[] for all, or some of {allowed}"
        )
        return
    for index, reason in enumerate(reasons):
        if not isinstance(reason, str) or reason not in set(DisruptionReason):
            yield Problem(f"{path}.reasons[{index}]", "is not a valid reason", format_value(reason), allowed)


def _window_problems(path: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    schedule, duration, zone = (entry.get(key) or None for key in ("schedule", "duration", "zone"))
    if schedule is None and duration is not None:
        yield Problem(f"{path}.schedule", "is required with duration", allowed="such as 0 9 * * mon-fri")
    if schedule is None and zone is not None:
        yield Problem(f"{path}.zone", "requires schedule", format_value(zone))
    elif zone is not None and _parse_zone(zone) is None:
        yield Problem(
            f"{path}.zone", "is not a valid time zone", format_value(zone), "such as UTC or Europe/Berlin"
        )
    if schedule is not None:
        try:
            parse_schedule(schedule if isinstance(schedule, str) else "")
        except InvalidSchedule as error:
            yield Problem(f"{path}.schedule", str(error), format_value(schedule), "such as 0 9 * * mon-fri")
        if duration is None:
            yield Problem(f"{path}.duration", "is required with schedule", allowed=DURATION_ALLOWED)
    if duration is not None and _parse_duration(duration) is None:
        yield Problem(f"{path}.duration", "is not a valid duration", format_value(duration), DURATION_ALLOWED)


def _parse_duration(duration: object) -> int | None:
    seconds = parse_duration(duration)
    return seconds if seconds is not None and DURATION_MIN <= seconds <= DURATION_MAX else None


def _parse_zone(name: object) -> tzinfo | None:
    try:
        return ZoneInfo(name) if isinstance(name, str) and name else None
    # The time zone is unknown or unreadable, or its name points outside the time zone database.
    except (ValueError, OSError, LookupError):
        return None
