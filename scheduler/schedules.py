"""Register the regular tasks of the task queue."""

from dataclasses import dataclass

from django_q.models import Schedule


@dataclass(frozen=True, slots=True)
class Regular:
    name: str
    func: str
    minutes: int


REGULAR = (
    Regular("berth: keep house", "scheduler.tasks.keep_house", 10),
    Regular("berth: deliver what is due", "projects.tasks.hand_out_due", 1),
    Regular("berth: tell who waits", "projects.tasks.tell", 1),
    Regular("berth: end what was for a while", "projects.tasks.lapse", 1),
    Regular("berth: watch budgets", "scheduler.tasks.watch", 5),
)


def keep_schedules() -> int:
    """Returns how many rows had to be put right. One caller at a time: whoever leads."""
    rows: dict[str, list[Schedule]] = {}
    for row in Schedule.objects.filter(name__startswith="berth: ").order_by("pk"):
        rows.setdefault(row.name, []).append(row)
    changed = 0
    for wanted in REGULAR:
        first, *doubles = rows.pop(wanted.name, []) or [None]
        changed += _put_right(wanted, first)
        for double in doubles:
            double.delete()
    for former in rows.values():
        for row in former:
            row.delete()
    return changed


def _put_right(wanted: Regular, row: Schedule | None) -> bool:
    every = {"schedule_type": Schedule.MINUTES, "minutes": wanted.minutes, "repeats": -1}
    values = {"func": wanted.func, **every}
    if row is not None and all(getattr(row, name) == value for name, value in values.items()):
        return False
    if row is None:
        Schedule.objects.create(name=wanted.name, **values)
    else:
        Schedule.objects.filter(pk=row.pk).update(**values)
    return True
