"""Register the regular tasks of the task queue."""

from dataclasses import dataclass

from django_q.models import Schedule


@dataclass(frozen=True, slots=True)
class RegularTask:
    name: str
    func: str
    minutes: int


REGULAR = (
    RegularTask("berth: delete expired data", "scheduler.tasks.delete_expired", 10),
    RegularTask("berth: enqueue due deliveries", "projects.tasks.enqueue_due_deliveries", 1),
    RegularTask("berth: notify conditions", "projects.tasks.notify_conditions", 1),
    RegularTask("berth: revert expired quota changes", "projects.tasks.revert_expired_quota_changes", 1),
    RegularTask("berth: check budgets", "scheduler.tasks.check_budgets", 5),
)


def keep_schedules() -> int:
    """Create, correct and remove schedules; return how many were corrected. Only the leader calls this."""
    rows: dict[str, list[Schedule]] = {}
    for row in Schedule.objects.filter(name__startswith="berth: ").order_by("pk"):
        rows.setdefault(row.name, []).append(row)
    changed = 0
    for task in REGULAR:
        first, *doubles = rows.pop(task.name, []) or [None]
        changed += _correct(task, first)
        for double in doubles:
            double.delete()
    for former in rows.values():
        for row in former:
            row.delete()
    return changed


def _correct(task: RegularTask, row: Schedule | None) -> bool:
    every = {"schedule_type": Schedule.MINUTES, "minutes": task.minutes, "repeats": -1}
    values = {"func": task.func, **every}
    if row is not None and all(getattr(row, name) == value for name, value in values.items()):
        return False
    if row is None:
        Schedule.objects.create(name=task.name, **values)
    else:
        Schedule.objects.filter(pk=row.pk).update(**values)
    return True
