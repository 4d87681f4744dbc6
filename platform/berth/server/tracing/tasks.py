"""OpenTelemetry spans around task queue jobs, and job names in log lines."""

from contextlib import ExitStack
from typing import Any

from django.dispatch import receiver
from django_q.signals import post_execute_in_worker, pre_execute
from structlog.contextvars import bound_contextvars

from berth.server.tracing.spans import Span, set_process_name, span

# A worker runs jobs one at a time, so this list has at most one item.
_job: list[tuple[ExitStack, Span]] = []


@receiver(pre_execute, dispatch_uid="berth.server.tracing.begin")
def begin(sender: object, func: Any, task: dict[str, Any], **more: Any) -> None:
    end_job()
    set_process_name("tasks")
    task_id, task_name = str(task["id"]), _task_name(func)
    stack = ExitStack()
    stack.enter_context(bound_contextvars(task=task_name, task_id=task_id))
    task_span = stack.enter_context(span(f"task {task_name}", berth__task=task_name, berth__task_id=task_id))
    _job.append((stack, task_span))


@receiver(post_execute_in_worker, dispatch_uid="berth.server.tracing.end")
def end(sender: object, func: Any, task: dict[str, Any], **more: Any) -> None:
    if _job and not task.get("success", False):
        _job[-1][1].mark_failed("the job failed")
    end_job()


def end_job() -> None:
    while _job:
        _job.pop()[0].close()


def _task_name(func: Any) -> str:
    return f"{getattr(func, '__module__', '?')}.{getattr(func, '__name__', '?')}"
