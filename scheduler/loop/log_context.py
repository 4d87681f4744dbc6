"""Attach the cycle number to log lines and spans."""

from structlog.contextvars import bind_contextvars, unbind_contextvars

from berth.server.tracing.spans import Span


def begin() -> None:
    """A new turn of the loop; its cycle has no number yet."""
    unbind_contextvars("cycle")


def in_cycle(cycle: int | None, *spans: Span) -> None:
    """Add the cycle's id to logs and spans, once its row exists; a cycle without changes may have none."""
    if cycle is None:
        return
    bind_contextvars(cycle=cycle)
    for traced in spans:
        traced.set_attributes(berth__cycle=cycle)
