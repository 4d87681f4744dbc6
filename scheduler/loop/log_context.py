"""Attach the cycle number to log lines and spans."""

from structlog.contextvars import bind_contextvars, unbind_contextvars

from berth.server.tracing.spans import Span


def unbind_cycle() -> None:
    unbind_contextvars("cycle")


def bind_cycle(cycle: int | None, *spans: Span) -> None:
    """Add the cycle's ID to log lines and spans. A cycle without a row has no ID."""
    if cycle is None:
        return
    bind_contextvars(cycle=cycle)
    for traced in spans:
        traced.set_attributes(berth__cycle=cycle)
