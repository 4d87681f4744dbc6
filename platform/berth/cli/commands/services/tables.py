"""Tables of inference services, engines, scale requests, autoscaler actions and failed engines."""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from berth.cli.printing.columns import phase_style
from berth.cli.printing.output import Column, Output, print_fields, print_items, print_section
from berth.cli.printing.text import format_age, format_number, format_short_time, format_time, utc_now

GOOD_STATUSES, BAD_STATUSES = ("ACTIVE", "COMPLETED", "PARTIAL", "NOOP"), ("FAILED", "CANCELLED")


def service_columns() -> list[Column]:
    return [
        Column("NAME", lambda s: s.name),
        Column("PROJECT", lambda s: s.project),
        Column("PHASE", lambda s: s.phase, style=lambda s: phase_style(s.phase)),
        Column("ENGINES", lambda s: f"{s.active_engines:,} of {s.total_engines:,}", right=True),
        Column("INITIAL", lambda s: f"{s.initial_engines}", right=True, wide=True),
        Column("MODEL", lambda s: s.model_name, flexible=True),
        Column("SCALE REQUEST", lambda s: _format_request(s.request), optional=True),
        Column("AUTOSCALER", lambda s: "on" if s.autoscaler_enabled else "off", optional=True),
        Column("AGE", lambda s: format_age(s.created_at, utc_now()), right=True, optional=True),
    ]


def engine_columns() -> list[Column]:
    return [
        Column("ENGINE", lambda e: e.engine_id),
        Column("STATE", lambda e: e.status, style=lambda e: _status_style(e.status)),
        Column("HEALTHY", lambda e: "yes" if e.is_healthy else "no"),
        Column("ROUTER", lambda e: "in" if e.in_router else "out", optional=True),
        Column("ORIGIN", lambda e: e.origin, optional=True),
        Column("GPUS", lambda e: format_number(e.gpus), right=True),
        Column("NODE", lambda e: e.node or "-"),
        Column("WEIGHTS", lambda e: e.weight_version or "-", optional=True),
        Column("URL", lambda e: e.url or "-", flexible=True),
        Column("MESSAGE", lambda e: e.message, wide=True),
    ]


def request_columns() -> list[Column]:
    return [
        Column("AGE", lambda r: format_age(_to_datetime(r.created_at), utc_now()), right=True),
        Column("REQUEST", lambda r: r.request_id),
        Column("DIRECTION", lambda r: "out" if r.direction == "scale_out" else "in"),
        Column(
            "TARGET",
            lambda r: f"{r.num_replicas}" if r.num_replicas else f"{len(r.engine_urls)} URLs",
            optional=True,
        ),
        Column("STATUS", lambda r: r.status, style=lambda r: _status_style(r.status)),
        Column("BY", lambda r: r.requested_by),
        Column("ENGINES", lambda r: ",".join(r.engine_ids) or "-", wide=True),
        Column("REASON", lambda r: r.error_message or r.reason, flexible=True),
    ]


def autoscaling_columns() -> list[Column]:
    return [
        Column(
            "TIME",
            lambda a: format_time(_to_datetime(a.triggered_at)),
            brief=lambda a: format_short_time(_to_datetime(a.triggered_at)),
        ),
        Column("ACTION", lambda a: a.action),
        Column("ENGINES", lambda a: f"{a.from_engines} to {a.to_engines}"),
        Column("STATUS", lambda a: a.status, style=lambda a: _status_style(a.status)),
        Column("REASON", lambda a: a.error_message or a.reason, flexible=True),
    ]


def failed_engine_columns() -> list[Column]:
    return [
        Column("TIME", lambda e: format_time(e.at), brief=lambda e: format_short_time(e.at)),
        Column("ENGINE", lambda e: str(e.data.get("engine", "-"))),
        Column("FAILURE", lambda e: str(e.data.get("failure") or "-"), optional=True),
        Column("URL", lambda e: str(e.data.get("url") or "-"), wide=True),
        Column("REASON", lambda e: e.message, flexible=True),
    ]


def print_accepted_request(response: Any) -> None:
    print_fields(
        [("Status", response.status), ("Request", response.request_id or ""), ("", response.message)]
    )
    if response.engine_ids:
        print_fields([("Engines to remove", ", ".join(response.engine_ids))])


def print_service(service: Any, rows: Sequence[Any], status: Any, output: Output) -> None:
    print_fields(
        [
            ("Name", service.handle),
            ("Phase", service.phase),
            ("Model", service.model_name),
            ("Engines", f"{service.active_engines:,} of {service.total_engines:,} active"),
            ("Initial engines", f"{service.initial_engines}"),
            ("Router", (service.settings.get("router") or {}).get("kind", "none")),
            ("Weights", service.weight_version or ""),
            ("Scale request", _format_request(service.request)),
            ("Autoscaler", _format_autoscaler(status)),
        ]
    )
    if rows:
        print_section("Engines")
        print_items(rows, engine_columns(), output)


def print_autoscaler(status: Any, conditions: Any, output: Output) -> None:
    print_fields(
        [
            ("Autoscaler", _format_autoscaler(status)),
            ("Engines", f"{status.current_engines}, allowed {status.min_engines} to {status.max_engines}"),
            (
                "Last scaled",
                format_time(_to_datetime(status.last_scale_time)) if status.last_scale_time else "never",
            ),
            ("Last decision", status.last_decision.reason if status.last_decision else ""),
            ("Error", status.error),
        ]
    )
    columns = [
        Column("CONDITION", lambda row: row[0]),
        Column("TYPE", lambda row: row[1].type),
        Column("VALUE", lambda row: _format_number(row[1].value), right=True),
        Column("THRESHOLD", lambda row: _format_number(row[1].threshold), right=True),
        Column("MET FOR", lambda row: f"{row[1].held_secs:.0f} of {row[1].duration_secs:.0f} s", right=True),
        Column("TRIGGERED", lambda row: _format_triggered(row[1])),
    ]
    print_section("Conditions")
    print_items(list(conditions.conditions.items()), columns, output)


def _format_triggered(condition: Any) -> str:
    if condition.met is None:
        return "unknown"
    return "yes" if condition.triggered else "no"


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _format_autoscaler(status: Any) -> str:
    if status is None:
        return ""
    word = "on" if status.enabled else "off"
    return word if status.running else f"{word}, but not running"


def _format_request(request: Any) -> str:
    return "-" if request is None else f"{request.direction} {request.status}"


def _status_style(status: str) -> str:
    if status in GOOD_STATUSES:
        return "green"
    return "red" if status in BAD_STATUSES else "yellow"


def _to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
