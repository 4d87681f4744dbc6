"""JSON encoding of orders, reports and log pieces."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pools.runtimes.base import DeviceUse, LogChunk, Measured, PodCause, PodOrder, PodReport, PodState, PodUse

LOG_HEADER = "X-Berth-Log"
HERE = "here"  # how a node calls itself when it is asked for its devices


def order_out(order: PodOrder) -> dict[str, Any]:
    return asdict(order) | {"env": dict(order.env)}


def order_in(told: dict[str, Any]) -> PodOrder:
    return PodOrder(**{**told, "command": tuple(told["command"]), "devices": tuple(told["devices"])})


def report_out(report: PodReport) -> dict[str, Any]:
    return asdict(report) | {
        "started_at": report.started_at and report.started_at.isoformat(),
        "ended_at": report.ended_at and report.ended_at.isoformat(),
    }


def report_in(told: dict[str, Any]) -> PodReport:
    times = {name: _moment(told[name]) for name in ("started_at", "ended_at")}
    kinds = {"state": PodState(told["state"]), "cause": PodCause(told["cause"])}
    return PodReport(**{**told, **times, **kinds})


def chunk_out(chunk: LogChunk) -> str:
    """All but the bytes, for a header."""
    return f"{chunk.offset} {chunk.next_offset} {chunk.size} {int(chunk.complete)}"


def chunk_in(header: str, data: bytes) -> LogChunk:
    offset, next_offset, size, complete = map(int, header.split())
    return LogChunk(data, offset, next_offset, size, bool(complete))


def measured_out(measured: Measured) -> dict[str, Any]:
    return {
        "pods": {pod_id: asdict(use) for pod_id, use in measured.pods.items()},
        "devices": [asdict(use) for use in measured.devices.get(HERE, ())],
    }


def measured_in(told: dict[str, Any], instance_id: str) -> Measured:
    devices = tuple(DeviceUse(**use) for use in told["devices"])
    pods = {pod_id: PodUse(**use) for pod_id, use in told["pods"].items()}
    return Measured(pods, {instance_id: devices} if devices else {})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
