"""Tracing spans.

OpenTelemetry is imported only if a collector is configured. Otherwise, a span costs almost nothing.
"""

import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OFF = ("true", "none")


class Span:
    """Span that records nothing, for processes without a collector."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def set_attributes(self, **attributes: Any) -> None:
        """Set attributes. Two underscores in a name become a dot."""

    def rename(self, name: str) -> None:
        """Rename the span."""

    def mark_failed(self, reason: str) -> None: ...


class RecordedSpan(Span):
    """Span that is recorded and remains the current span until the block ends."""

    def __init__(self, scope: AbstractContextManager[Any]) -> None:
        self._scope = scope
        self._span: Any = None

    def __enter__(self) -> Self:
        self._span = self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.__exit__(kind, error, trace)

    def set_attributes(self, **attributes: Any) -> None:
        for key, value in _attributes(attributes).items():
            self._span.set_attribute(key, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def mark_failed(self, reason: str) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR, reason)


NO_SPAN = Span()
_setup_lock = threading.Lock()
_process = "command"
_is_set_up, _tracer = False, None


def set_process_name(name: str) -> None:
    """Set the name of this process in its spans: web, scheduler, services or tasks."""
    global _process  # noqa: PLW0603
    _process = name


def process_name() -> str:
    return _process


def is_tracing_enabled() -> bool:
    return _tracer_if_enabled() is not None


def span(name: str, *, headers: Mapping[str, str] | None = None, **attributes: Any) -> Span:
    """Return a span for a `with` statement. If `headers` contain a trace, the span continues that trace."""
    tracer = _tracer_if_enabled()
    if tracer is None:
        return NO_SPAN
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    if headers is None:
        return RecordedSpan(tracer.start_as_current_span(name, attributes=_attributes(attributes)))
    context, kind = extract(headers), SpanKind.SERVER
    return RecordedSpan(
        tracer.start_as_current_span(name, context=context, kind=kind, attributes=_attributes(attributes))
    )


def current_ids() -> dict[str, str]:
    """Return the current trace and span IDs for log lines, or an empty dict if there is no span."""
    if _tracer is None:
        return {}
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}


def _tracer_if_enabled() -> Any:
    global _is_set_up, _tracer  # noqa: PLW0603
    if not _is_set_up:
        with _setup_lock:
            if not _is_set_up:
                _tracer = _create_tracer() if _is_enabled() else None
                _is_set_up = True
    return _tracer


def _is_enabled() -> bool:
    env = os.environ.get
    if env("OTEL_SDK_DISABLED", "").lower() in OFF or env("OTEL_TRACES_EXPORTER", "").lower() in OFF:
        return False
    return any(env(name) for name in ENDPOINTS)


def _create_tracer() -> Any:
    from berth.server.tracing.collector import create_tracer

    return create_tracer(_process)


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in values.items() if value is not None}
