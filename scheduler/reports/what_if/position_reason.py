"""Explain the predicted queue position of an unsaved workload."""

from collections.abc import Iterable

from scheduler.engine.plan import Rejection
from scheduler.reports.queues.queue_ordering import (
    SUBMITTED_START,
    WORKLOAD_START,
    differing_queues,
    is_not_ready,
    order_difference_clause,
)
from scheduler.reports.visibility import Viewer, project_from_handle


def explain_position(rejection: Rejection, rejections: Iterable[Rejection], viewer: Viewer) -> str:
    """Return why the workload directly ahead in the queue is ahead, such as "robotics is ahead because it
    uses less of its fair share than vision". Return "" for the first workload.
    """
    ahead = next(
        (
            each
            for each in rejections
            if rejection.position is not None
            and each.position == rejection.position - 1
            and each.pool == rejection.pool
        ),
        None,
    )
    if ahead is None:
        return ""
    project = project_from_handle(ahead.workload)
    if project == project_from_handle(rejection.workload):
        return _explain_order_in_project(ahead, rejection)
    queues = differing_queues(ahead.key, rejection.key)
    if queues is None:
        return "workloads that can start are ahead" if is_not_ready(rejection.key) else ""
    name = queues[0] if viewer.can_see_project_named(project) else "another project"
    return f"{name} is ahead because it {order_difference_clause(ahead.key, rejection.key)}"


def _explain_order_in_project(ahead: Rejection, rejection: Rejection) -> str:
    name = ahead.workload.partition("/")[2]
    if is_not_ready(rejection.key) and not is_not_ready(ahead.key):
        return "workloads that can start are ahead"
    if _key_part(ahead, WORKLOAD_START) != _key_part(rejection, WORKLOAD_START):
        return f"{name} is ahead because it has a higher priority"
    if _key_part(ahead, SUBMITTED_START) != _key_part(rejection, SUBMITTED_START):
        return f"{name} is ahead because it was submitted earlier"
    return ""


def _key_part(rejection: Rejection, start: str) -> str:
    return next((part for part in rejection.key if part.startswith(start)), "")
