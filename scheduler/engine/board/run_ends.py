"""Declared and expected end times of gangs, and the time after which resources are held for a pending
gang.
"""

from collections.abc import Iterator

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang


def known_end_time(gang: Gang, now: int) -> int | None:
    """Return the gang's declared or expected end time, or None if unknown.

    A pending gang is assumed to start now.
    """
    end, workload = declared_end_time(gang, now), gang.workload
    if end is not None:
        return end
    started = _start_time(gang, now)
    expected = None if workload.endless else gang.account.queue.expected_runtime
    return started + expected if expected is not None and started + expected > now else None


def declared_end_time(gang: Gang, now: int) -> int | None:
    """Return the gang's latest possible end time, or None if it declares no maximum runtime."""
    max_runtime = gang.workload.max_runtime
    return None if max_runtime is None else _start_time(gang, now) + max_runtime


def _start_time(gang: Gang, now: int) -> int:
    started = gang.workload.started
    return started if started is not None and gang.has_pods else now


def has_waited_long_enough(board: Board, gang: Gang) -> bool:
    """Return whether the gang has been pending long enough for nodes and quota to be held for it."""
    after = board.pool.reservation_after
    return after is not None and board.now - gang.workload.submitted >= after


def has_finite_runtime(gang: Gang) -> bool:
    """Return whether the gang has a maximum runtime or is expected to complete."""
    return gang.workload.max_runtime is not None or not gang.workload.endless


def known_end_times(board: Board, declared_only: bool) -> Iterator[tuple[int, Gang]]:
    """Yield (end, gang) for each gang with pods and a known end time."""
    for account, gangs in board.by_project.items():
        includes_expected = not declared_only and account.queue.expected_runtime is not None
        key = "gangs with a runtime", includes_expected
        if key not in account.cache:
            account.cache[key] = [
                gang
                for gang in gangs.values()
                if gang.workload.max_runtime is not None or (includes_expected and not gang.workload.endless)
            ]
        for gang in account.cache[key]:
            end = known_end_time(gang, board.now)
            if end is not None:
                yield end, gang
