"""JSON encoding of pod specs, reports, log chunks and usage."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pools.runtimes.base import (
    DeviceUsage,
    LogChunk,
    Measurements,
    PodCause,
    PodReport,
    PodSpec,
    PodState,
    PodUsage,
    VolumeMount,
)
from pools.runtimes.enclosure.levels import Isolation, IsolationLevel, IsolationPolicy

LOG_HEADER = "X-Berth-Log"
THIS_INSTANCE = "here"  # a node uses this instance ID to refer to itself


def encode_pod_spec(spec: PodSpec) -> dict[str, Any]:
    mappings = {name: dict(getattr(spec, name)) for name in ("env", "secret_env", "secret_files")}
    return asdict(spec) | mappings


def decode_pod_spec(fields: dict[str, Any]) -> PodSpec:
    names = ("command", "devices", "optional_limits", "address_env", "outputs")
    lists = {name: tuple(fields.get(name, ())) for name in names}
    volumes = tuple(VolumeMount(**mount) for mount in fields.get("volumes", ()))
    return PodSpec(**{**fields, **lists, "volumes": volumes})


def encode_report(report: PodReport) -> dict[str, Any]:
    return asdict(report) | {
        "started_at": report.started_at and report.started_at.isoformat(),
        "ended_at": report.ended_at and report.ended_at.isoformat(),
    }


def decode_report(fields: dict[str, Any]) -> PodReport:
    times = {name: _parse_time(fields[name]) for name in ("started_at", "ended_at")}
    kinds = {"state": PodState(fields["state"]), "cause": PodCause(fields["cause"])}
    return PodReport(**{**fields, **times, **kinds})


def encode_chunk_header(chunk: LogChunk) -> str:
    """Encode a chunk's fields, except the data, as a header value."""
    return f"{chunk.offset} {chunk.next_offset} {chunk.size} {int(chunk.complete)}"


def decode_chunk(header: str, data: bytes) -> LogChunk:
    offset, next_offset, size, complete = map(int, header.split())
    return LogChunk(data, offset, next_offset, size, bool(complete))


def encode_measurements(measured: Measurements) -> dict[str, Any]:
    return {
        "pods": {pod_id: asdict(use) for pod_id, use in measured.pods.items()},
        "devices": [asdict(use) for use in measured.devices.get(THIS_INSTANCE, ())],
    }


def decode_measurements(fields: dict[str, Any], instance_id: str) -> Measurements:
    devices = tuple(DeviceUsage(**use) for use in fields["devices"])
    pods = {pod_id: PodUsage(**use) for pod_id, use in fields["pods"].items()}
    return Measurements(pods, {instance_id: devices} if devices else {})


def encode_isolation(isolation: Isolation) -> dict[str, Any]:
    return asdict(isolation)


def decode_isolation(fields: dict[str, Any]) -> Isolation:
    kinds = {"level": IsolationLevel(fields["level"]), "policy": IsolationPolicy(fields["policy"])}
    return Isolation(**{**fields, **kinds, "limits": tuple(fields["limits"])})


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
