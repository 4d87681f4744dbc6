"""Models for monthly budgets and their warnings."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from projects.models.tenants import Department, Project, Tenant

MAX_HOURS = 10**9
MAX_PERCENT = 200


def default_warnings() -> list[int]:
    return [80, 100]


class Budget(models.Model):
    """Monthly budget in GPU-hours (calendar months in UTC). Exceeding it only triggers notifications."""

    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="+")
    gpu_hours = models.BigIntegerField()
    warn_at = ArrayField(
        models.PositiveIntegerField(),
        default=default_warnings,
        help_text="Percentages of the budget, ascending.",
    )
    version = models.BigIntegerField(editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["department__name", "project__name"]
        constraints = [
            models.CheckConstraint(
                name="budget_has_one_owner",
                condition=Q(department__isnull=False, project__isnull=True)
                | Q(department__isnull=True, project__isnull=False),
            ),
            models.UniqueConstraint(name="budget_once_per_department", fields=["department"]),
            models.UniqueConstraint(name="budget_once_per_project", fields=["project"]),
            models.CheckConstraint(
                name="budget_hours_range", condition=Q(gpu_hours__gte=1, gpu_hours__lte=MAX_HOURS)
            ),
        ]

    @property
    def owner(self) -> Tenant:
        owner = self.department or self.project
        assert owner is not None, "guaranteed by the constraint budget_has_one_owner"
        return owner

    def __str__(self) -> str:
        return f"{self.owner}: {self.gpu_hours:,} GPU-hours a month"


class BudgetWarning(models.Model):
    """Budget threshold that was reached in a month. One notification is sent per threshold."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="warnings")
    month = models.DateField(help_text="First day of the month.")
    percent = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(name="budget_warning_once", fields=["budget", "month", "percent"])
        ]

    def __str__(self) -> str:
        return f"{self.percent}% of {self.budget}"
