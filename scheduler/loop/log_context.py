"""Attach the cycle number to log lines and spans."""

from structlog.contextvars import bind_contextvars, unbind_contextvars

from berth.server.tracing.spans import Span


def begin() -> None:
    """A new turn of the loop; its cycle has no number yet."""
    unbind_contextvars("cycle")


def in_cycle(cycle: int | None, *spans: Span) -> None:
    """From now on, as soon as the cycle has a row. One in which nothing happened may never have one."""
    if cycle is None:
        return
    bind_contextvars(cycle=cycle)
    for told in spans:
        told.tell(berth__cycle=cycle)
