"""Register the task queue's periodic tasks."""

from dataclasses import dataclass

from django_q.models import Schedule


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    name: str
    func: str
    minutes: int


PERIODIC_TASKS = (
    PeriodicTask("berth: delete expired data", "scheduler.tasks.delete_expired", 10),
    PeriodicTask("berth: enqueue due deliveries", "projects.tasks.enqueue_due_deliveries", 1),
    PeriodicTask("berth: notify conditions", "projects.tasks.notify_conditions", 1),
    PeriodicTask("berth: revert expired quota changes", "projects.tasks.revert_expired_quota_changes", 1),
    PeriodicTask("berth: delete unused code", "scheduler.tasks.delete_unused_code", 60),
    PeriodicTask("berth: check budgets", "scheduler.tasks.check_budgets", 5),
)


def sync_schedules() -> int:
    """Make the stored schedules match `PERIODIC_TASKS`.

    Return the number of created and corrected schedules.
    """
    rows: dict[str, list[Schedule]] = {}
    for row in Schedule.objects.filter(name__startswith="berth: ").order_by("pk"):
        rows.setdefault(row.name, []).append(row)
    changed = 0
    for task in PERIODIC_TASKS:
        first, *duplicates = rows.pop(task.name, []) or [None]
        changed += _sync_schedule(task, first)
        for duplicate in duplicates:
            duplicate.delete()
    for obsolete in rows.values():
        for row in obsolete:
            row.delete()
    return changed


def _sync_schedule(task: PeriodicTask, row: Schedule | None) -> bool:
    every = {"schedule_type": Schedule.MINUTES, "minutes": task.minutes, "repeats": -1}
    values = {"func": task.func, **every}
    if row is not None and all(getattr(row, name) == value for name, value in values.items()):
        return False
    if row is None:
        Schedule.objects.create(name=task.name, **values)
    else:
        Schedule.objects.filter(pk=row.pk).update(**values)
    return True
