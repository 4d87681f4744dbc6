"""Attach the cycle number to log lines and spans."""

from structlog.contextvars import bind_contextvars, unbind_contextvars

from berth.server.tracing.spans import Span


def begin() -> None:
    """Start a loop iteration, whose cycle has no number yet."""
    unbind_contextvars("cycle")


def in_cycle(cycle: int | None, *spans: Span) -> None:
    """Add the cycle's id to logs and spans. A cycle without changes may have no row and so no id."""
    if cycle is None:
        return
    bind_contextvars(cycle=cycle)
    for traced in spans:
        traced.set_attributes(berth__cycle=cycle)
