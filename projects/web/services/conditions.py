"""Scaling conditions on a service's page."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from projects.engine.replicas import config as names
from projects.engine.replicas.conditions import Condition
from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.readings import SampleWindow
from projects.web.services.charts import RECENT, backlog_threshold, format_percent

TITLES = {
    "token_usage_high": "Token usage high",
    "queue_backlog": "Queue backlog",
    "queue_latency_high": "Queue latency high",
    "ttft_high": "Time to first token high",
    "token_usage_low": "Token usage low",
    "no_queue": "Queue empty",
    "throughput_stable": "Throughput stable",
}
IN_SECONDS = ("queue_latency_high", "ttft_high")
IN_PERCENT = (names.TOKEN_USAGE_HIGH, names.TOKEN_USAGE_LOW, names.THROUGHPUT_STABLE)
KEYS = re.compile("|".join(rf"\b{name}\b" for name in TITLES))


def measured_at(window: SampleWindow, now: datetime) -> datetime | None:
    """Return the time of the latest measurement, or None if it is more than an hour old."""
    latest = window.latest
    at = datetime.fromtimestamp(latest.at, UTC) if latest is not None else None
    return at if at is not None and now - RECENT < at <= now else None


def condition_row(one: Condition, config: AutoscalerConfig, *, is_fresh: bool) -> dict[str, Any]:
    """Return a condition's table row: its state, and the latest value and threshold with units."""
    state = (
        "unknown" if one.is_met is None else "met" if one.triggered else "holds" if one.is_met else "not_met"
    )
    threshold = one.threshold
    if one.name == names.QUEUE_BACKLOG:
        threshold = backlog_threshold(config, one.reporting, one.engines)
    return {
        "title": TITLES.get(one.name, one.name),
        "direction": "out" if one.scales_out else "in",
        "value": "not measured" if one.value is None else _format_value(one.name, one.value),
        "threshold": _format_value(one.name, threshold),
        "bound": "above" if one.scales_out else "at most" if one.name == names.NO_QUEUE else "below",
        "held": min(one.held, one.duration),
        "duration": one.duration,
        "state": state,
        "tone": {"unknown": "plain", "met": "good", "holds": "info", "not_met": "plain"}[state],
        "reporting": f"{one.reporting if is_fresh else 0} of {one.engines}",
    }


def explain_unknown_states(
    evaluated: Sequence[Condition], measured: datetime | None, *, is_fresh: bool
) -> str:
    """Return why all conditions are unknown, or an empty string if any is known."""
    if measured is None:
        return "No metrics were measured in the last hour."
    if not is_fresh:
        return "Measurements have stopped. The table shows the last measured values."
    if any(one.is_met is not None for one in evaluated):
        return ""
    if any(one.reporting for one in evaluated):
        return "Fewer than half of the engines report each of these metrics."
    return "No engine reports metrics."


def use_condition_titles(reason: str) -> str:
    """Replace condition keys in a decision's reason with their titles."""
    return KEYS.sub(lambda match: TITLES[match[0]], reason)


def _format_value(name: str, value: float) -> str:
    if name in IN_PERCENT:
        return format_percent(value)
    return f"{value:,.3g} s" if name in IN_SECONDS else f"{value:,.3g}"
