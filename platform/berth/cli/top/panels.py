"""Rows for the panels of the service screen. Dashes mark unknown values."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from berth.cli.printing.text import format_age, format_duration, format_number, format_value, printable
from berth.cli.top.service import ServiceSnapshot

Row = tuple[str, ...]
ENGINES = ("ENGINE", "STATUS", "HEALTHY", "ORIGIN", "RUNNING", "WEIGHTS", "URL")
CONDITIONS = ("CONDITION", "FOR", "VALUE", "THRESHOLD", "HELD", "NOW")
HISTORY = ("WHEN", "ACTION", "ENGINES", "STATUS", "TOOK", "REASON")
SHOWN_METRICS = (
    ("engines reporting", "reporting_engines"),
    ("token usage", "avg_token_usage"),
    ("queued", "total_queue_reqs"),
    ("running", "total_running_reqs"),
    ("tokens/s", "total_gen_throughput"),
    ("queue p95 s", "queue_time_p95"),
    ("first token p95 s", "ttft_p95"),
)


def status_lines(snapshot: ServiceSnapshot) -> Iterator[str]:
    status, decision = snapshot.status, snapshot.status.get("last_decision") or {}
    on = "on" if status.get("enabled") else "off"
    yield f"autoscaler {on}, {'running' if status.get('running') else 'not running'}"
    bounds = f"{format_value(status.get('min_engines'))} to {format_value(status.get('max_engines'))}"
    yield f"engines    {format_value(status.get('current_engines'))}, allowed {bounds}"
    yield f"last       {_format_last_action(snapshot)}"
    if decision:
        delta = f" {format_value(decision.get('delta'))}" if decision.get("delta") else ""
        action, reason = format_value(decision.get("action")), format_value(decision.get("reason"))
        yield f"decided    {action}{delta}: {reason}"
    pending = status.get("pending_requests") or []
    yield f"pending    {', '.join(printable(request) for request in pending) or 'nothing'}"
    if error := status.get("error"):
        yield f"error      {printable(error)}"


def metric_rows(snapshot: ServiceSnapshot) -> list[tuple[str, str]]:
    seen = snapshot.status.get("recent_metrics") or {}
    return [(name, _format_number(seen.get(key))) for name, key in SHOWN_METRICS]


def condition_rows(snapshot: ServiceSnapshot) -> list[Row]:
    conditions: Mapping[str, Any] = snapshot.conditions.get("conditions") or {}
    return [
        (
            printable(name),
            "out" if condition.get("type") == "scale_out" else "in",
            _format_number(condition.get("value")),
            _format_number(condition.get("threshold")),
            (
                f"{format_duration(condition.get('held_secs') or 0)} "
                f"of {format_duration(condition.get('duration_secs') or 0)}"
            ),
            _condition_state(condition),
        )
        for name, condition in conditions.items()
    ]


def engine_rows(snapshot: ServiceSnapshot) -> list[Row]:
    models: Mapping[str, Any] = snapshot.engines.get("models") or {}
    return [
        (
            printable(engine.get("engine_id")),
            printable(engine.get("status")),
            format_value(engine.get("is_healthy")),
            printable(engine.get("origin", "-")),
            _format_number(engine.get("running_requests")),
            printable(engine.get("weight_version") or "-"),
            printable(engine.get("url") or "-"),
        )
        for name in models
        for engine in models[name].get("engines", [])
    ]


def history_rows(snapshot: ServiceSnapshot) -> list[Row]:
    return [
        (
            f"{format_age(_to_datetime(record.get('triggered_at')), snapshot.at)} ago",
            printable(record.get("action")),
            f"{format_value(record.get('from_engines'))} to {format_value(record.get('to_engines'))}",
            printable(record.get("status")),
            _format_record_duration(record),
            printable(record.get("error_message") or record.get("reason")),
        )
        for record in snapshot.history.get("history") or []
    ]


def format_summary(snapshot: ServiceSnapshot) -> str:
    """Format all panels as plain text, for output that is not a terminal."""
    parts = [
        *status_lines(snapshot),
        ", ".join(f"{name} {value}" for name, value in metric_rows(snapshot)),
        *("  ".join(row) for row in condition_rows(snapshot)),
        *("  ".join(row) for row in engine_rows(snapshot)),
        *("  ".join(row) for row in history_rows(snapshot)),
    ]
    return "\n".join(parts)


def _format_last_action(snapshot: ServiceSnapshot) -> str:
    moment = _to_datetime(snapshot.status.get("last_scale_time"))
    if moment is None:
        return "never scaled"
    return f"{printable(snapshot.status.get('last_scale_action'))}, {format_age(moment, snapshot.at)} ago"


def _condition_state(condition: Mapping[str, Any]) -> str:
    if condition.get("triggered"):
        return "MET"
    return {True: "met", False: "no"}.get(condition.get("met", False), "unknown")


def _format_record_duration(record: Mapping[str, Any]) -> str:
    started, ended = record.get("triggered_at"), record.get("completed_at")
    if not isinstance(started, int | float) or not isinstance(ended, int | float):
        return "-"
    return format_duration(ended - started)


def _format_number(value: object) -> str:
    return format_number(value) if isinstance(value, int | float) and not isinstance(value, bool) else "-"


def _to_datetime(seconds: object) -> datetime | None:
    if not isinstance(seconds, int | float):
        return None
    return datetime.fromtimestamp(seconds, timezone.utc)
