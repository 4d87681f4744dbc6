"""Browser test data: reproducible usage history."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from berth.core.values.amounts import MILLI
from projects.models import Budget, BudgetWarning
from projects.services.quotas import budgets
from scheduler.models import Allocation, UsageHour, UtilizationPoint
from scheduler.reports.usage.budgets import FULL_PERCENT, budget_statuses
from tests import factories as make
from tests.browser.data.requests import acting
from tests.browser.data.workloads.array import USAGE as LR_SWEEP_USAGE

WEEKS = 8
MEASURED_HOURS = 7 * 24
PEOPLE = {"vision": ("dave", 9.5), "speech": ("hiro", 6), "robotics": ("bert", 2.5), "ads": ("grace", 4),
          "search": ("heidi", 3)}  # fmt: skip
# runs that have ended: project, GPUs, and the minutes since their start and end
ENDED_RUNS = {
    "detr-long": ("vision", 4, 80, 12), "vit-baseline": ("vision", 2, 180, 120),
    "vit-large-lr3": ("vision", 2, 180, 120), "ranker-test": ("ads", 2, 180, 120),
    "tts-smoke": ("speech", 2, 180, 120), "lr-sweep": ("vision", *LR_SWEEP_USAGE),
}  # fmt: skip
# by project, an ended workload whose first pod stands for all earlier pods in measurements
MEASURED = {"vision": "vit-baseline", "speech": "tts-smoke", "ads": "ranker-test"}


def create_usage_history(scene: Any) -> None:
    """Create weeks of usage, lower at night and at weekends, that lead up to the current allocations."""
    now = timezone.now()
    hour = now.replace(minute=0, second=0, microsecond=0)
    pool = scene.pools["train"]
    present, ended = _present_gpu_hours(hour, now), _gpu_hours_of_ended_runs(hour, now)
    rows = []
    for back in range(WEEKS * 7 * 24):
        at = hour - timedelta(hours=back)
        calm = 0.35 if at.weekday() >= 5 else 0.6 if not 7 <= at.hour < 20 else 1.0
        for number, (name, (person, gpus)) in enumerate(PEOPLE.items()):
            if name not in scene.projects or (name == "search" and not 4 < back <= 24 * 9):
                continue
            wave = 0.7 + 0.3 * ((back // 5 + number * 7) % 4) / 3
            others = max(0, gpus * calm * wave - present[name, at] - ended[name, at]) if back else 0
            if total := ended[name, at] + others:
                rows.append(_hour(at, pool, scene.projects[name], person, total))
    UsageHour.objects.bulk_create(rows)
    _measure(scene, [row for row in rows if row.hour > hour - timedelta(hours=MEASURED_HOURS)])
    ada = acting(scene.people["ada"])
    for owner, hours in ((scene.departments["research"], 11_000), (scene.projects["vision"], 4_500),
                         (scene.projects["ads"], 900)):  # fmt: skip
        budgets.set_budget(actor=ada, owner=owner, values={"gpu_hours": hours})
    for status in budget_statuses(list(Budget.objects.all()), timezone.now()):
        if status.percent > FULL_PERCENT:
            month = status.begin.date()
            BudgetWarning.objects.create(
                budget=status.budget, month=month, percent=FULL_PERCENT, at=make.ago(hours=26)
            )


def _present_gpu_hours(hour: datetime, now: datetime) -> dict[tuple[str, datetime], float]:
    """Return the GPU-hours of the current allocations, keyed by project and hour."""
    sums = defaultdict[tuple[str, datetime], float](float)
    for row in Allocation.objects.select_related("pod__workload__project"):
        for at, part in _parts_of_hours(row.bound_at, now, hour):
            sums[row.pod.workload.project.name, at] += part * row.gpu_milli_total / MILLI
    return sums


def _gpu_hours_of_ended_runs(hour: datetime, now: datetime) -> dict[tuple[str, datetime], float]:
    sums = defaultdict[tuple[str, datetime], float](float)
    for project, gpus, start, end in ENDED_RUNS.values():
        for at, part in _parts_of_hours(make.ago(minutes=start), min(now, make.ago(minutes=end)), hour):
            sums[project, at] += part * gpus
    return sums


def _parts_of_hours(begin: datetime, end: datetime, hour: datetime) -> Iterator[tuple[datetime, float]]:
    """Yield the hours up to `hour` that overlap the period from `begin` to `end`, each with the fraction that
    overlaps.
    """
    at = hour
    while at + timedelta(hours=1) > begin:
        part = (min(end, at + timedelta(hours=1)) - max(begin, at)).total_seconds() / 3600
        if part > 0:
            yield at, part
        at -= timedelta(hours=1)


def _hour(at: datetime, pool: Any, project: Any, person: str, gpus: float) -> UsageHour:
    return UsageHour(
        hour=at, pool_id=pool.pk, pool_name=pool.name, department_id=project.department_id,
        department_name=project.department.name, project_id=project.pk, project_name=project.name,
        user_name=person, gpu_milli_seconds=round(gpus * 3_600_000),
        cpu_milli_seconds=round(gpus * 8 * 3_600_000), memory_mib_seconds=round(gpus * 32 * 1024 * 3600),
    )  # fmt: skip


def _measure(scene: Any, rows: list[UsageHour]) -> None:
    """Create measurements of 70 to 90 percent utilization for the usage of ended pods."""
    pods = {project: scene.workloads[name].pods.get(index=0) for project, name in MEASURED.items()}
    points = []
    for row in rows:
        if row.project_name in pods:
            busy = row.gpu_milli_seconds * (0.7 + 0.05 * (row.hour.hour % 5))
            point = UtilizationPoint(
                pod=pods[row.project_name], step=3600, at=row.hour, seconds=3600, cpu_milli_seconds=0,
                memory_mib=0, gpu_milli_seconds=row.gpu_milli_seconds, gpu_busy_milli_seconds=busy,
            )  # fmt: skip
            points.append(point)
    UtilizationPoint.objects.bulk_create(points)
