"""Release held tasks of arrays as earlier tasks end, and end arrays."""

from datetime import datetime

from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import fenced_transaction
from projects.services.arrays.progress import arrays_to_advance, lock_and_advance_arrays
from scheduler.loop.context import SchedulerContext


def advance_arrays(now: datetime, context: SchedulerContext) -> int:
    """Release tasks and end arrays. Return the number of released tasks and ended arrays."""
    due = arrays_to_advance()
    if not due:
        return 0
    with fenced_transaction(context.held_lease):
        advanced = lock_and_advance_arrays(due, now)
        crash_point("arrays.before_end")
    crash_point("arrays.done")
    return advanced
