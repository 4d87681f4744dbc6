"""Browser test data: reproducible usage history."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from projects.actor import Actor
from projects.models import Budget, BudgetWarning
from projects.services.quotas import budgets
from scheduler.models import UsageHour
from scheduler.reports.usage.budgets import FULL_PERCENT, budget_statuses

WEEKS = 8
PEOPLE = {"vision": ("dave", 9.5), "speech": ("erin", 6), "robotics": ("carol", 2.5), "ads": ("grace", 4),
          "search": ("heidi", 3)}  # fmt: skip


def create_usage_history(scene: Any) -> None:
    """Create weeks of usage that is lower at night and at weekends."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    pool = scene.pools["train"]
    rows = []
    for back in range(5, WEEKS * 7 * 24):
        at = hour - timedelta(hours=back)
        calm = 0.35 if at.weekday() >= 5 else 0.6 if not 7 <= at.hour < 20 else 1.0
        for number, (name, (person, gpus)) in enumerate(PEOPLE.items()):
            if name not in scene.projects or (name == "search" and back > 24 * 9):
                continue
            wave = 0.7 + 0.3 * ((back // 5 + number * 7) % 4) / 3
            rows.append(_hour(at, pool, scene.projects[name], person, gpus * calm * wave))
    UsageHour.objects.bulk_create(rows)
    ada = Actor.for_user(scene.people["ada"])
    for owner, hours in ((scene.departments["research"], 11_000), (scene.projects["vision"], 4_500),
                         (scene.projects["ads"], 900)):  # fmt: skip
        budgets.set_budget(actor=ada, owner=owner, values={"gpu_hours": hours})
    for status in budget_statuses(list(Budget.objects.all()), timezone.now()):
        if status.percent > FULL_PERCENT:
            month = status.begin.date()
            BudgetWarning.objects.create(budget=status.budget, month=month, percent=FULL_PERCENT)


def _hour(at: Any, pool: Any, project: Any, person: str, gpus: float) -> UsageHour:
    return UsageHour(
        hour=at, pool_id=pool.pk, pool_name=pool.name, department_id=project.department_id,
        department_name=project.department.name, project_id=project.pk, project_name=project.name,
        user_name=person, gpu_milli_seconds=round(gpus * 3_600_000),
        cpu_milli_seconds=round(gpus * 8 * 3_600_000), memory_mib_seconds=round(gpus * 32 * 1024 * 3600),
    )  # fmt: skip
