"""Database model of quota groups, whose pools share quotas."""

from django.db import models
from django.db.models import Q

from berth.db.queries.fast_rows import FastRows


class QuotaGroup(FastRows):
    """Group of pools that have the same GPU model and share quotas. No pool may have the group's name."""

    name = models.SlugField(max_length=40, unique=True)
    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(name="quota_group_version_positive", condition=Q(version__gte=1)),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def kind_and_name(self) -> str:
        return f"quota group {self.name}"
