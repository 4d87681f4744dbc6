"""JSON encoding of orders, reports and log pieces."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pools.runtimes.base import DeviceUse, LogChunk, Measured, PodCause, PodOrder, PodReport, PodState, PodUse

LOG_HEADER = "X-Berth-Log"
HERE = "here"  # instance id that a node uses for itself


def order_out(order: PodOrder) -> dict[str, Any]:
    return asdict(order) | {"env": dict(order.env)}


def order_in(fields: dict[str, Any]) -> PodOrder:
    return PodOrder(**{**fields, "command": tuple(fields["command"]), "devices": tuple(fields["devices"])})


def report_out(report: PodReport) -> dict[str, Any]:
    return asdict(report) | {
        "started_at": report.started_at and report.started_at.isoformat(),
        "ended_at": report.ended_at and report.ended_at.isoformat(),
    }


def report_in(fields: dict[str, Any]) -> PodReport:
    times = {name: _moment(fields[name]) for name in ("started_at", "ended_at")}
    kinds = {"state": PodState(fields["state"]), "cause": PodCause(fields["cause"])}
    return PodReport(**{**fields, **times, **kinds})


def chunk_out(chunk: LogChunk) -> str:
    """Encode everything but the bytes, for a header."""
    return f"{chunk.offset} {chunk.next_offset} {chunk.size} {int(chunk.complete)}"


def chunk_in(header: str, data: bytes) -> LogChunk:
    offset, next_offset, size, complete = map(int, header.split())
    return LogChunk(data, offset, next_offset, size, bool(complete))


def measured_out(measured: Measured) -> dict[str, Any]:
    return {
        "pods": {pod_id: asdict(use) for pod_id, use in measured.pods.items()},
        "devices": [asdict(use) for use in measured.devices.get(HERE, ())],
    }


def measured_in(fields: dict[str, Any], instance_id: str) -> Measured:
    devices = tuple(DeviceUse(**use) for use in fields["devices"])
    pods = {pod_id: PodUse(**use) for pod_id, use in fields["pods"].items()}
    return Measured(pods, {instance_id: devices} if devices else {})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
