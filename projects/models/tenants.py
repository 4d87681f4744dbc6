"""Models for departments, projects and quotas."""

from collections.abc import Iterable
from typing import Any, Literal

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from berth.db.queries.fast_rows import FastRows
from pools.models import NodePool, QuotaGroup

NAME = RegexValidator(
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
)


class Department(FastRows):
    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    title = models.CharField(max_length=200, blank=True)
    rank = models.IntegerField(default=0, help_text="Higher ranks come first.")
    reclaim_min_runtime = models.PositiveIntegerField(
        null=True, blank=True, help_text="In seconds. Leave empty to use the pool's value."
    )
    preempt_min_runtime = models.PositiveIntegerField(
        null=True, blank=True, help_text="In seconds. Leave empty to use the pool's value."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="department_rank_range", condition=Q(rank__gte=-1000, rank__lte=1000)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Project(FastRows):
    department = models.ForeignKey(Department, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    title = models.CharField(max_length=200, blank=True)
    rank = models.IntegerField(default=0, help_text="Higher ranks within the department come first.")
    reclaim_min_runtime = models.PositiveIntegerField(
        null=True, blank=True, help_text="In seconds. Leave empty to use the department's value."
    )
    preempt_min_runtime = models.PositiveIntegerField(
        null=True, blank=True, help_text="In seconds. Leave empty to use the department's value."
    )
    idle_rule = models.JSONField(
        default=dict,
        blank=True,
        help_text="Rule for idle GPUs that replaces the pool's rule. Empty if the pool's rule applies.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["department__name", "name"]
        constraints = [
            models.CheckConstraint(name="project_rank_range", condition=Q(rank__gte=-1000, rank__lte=1000)),
        ]

    def __str__(self) -> str:
        return self.name


Tenant = Department | Project


def owner_kind(owner: Tenant) -> Literal["department", "project"]:
    return "department" if isinstance(owner, Department) else "project"


def owner_columns(owner: Tenant) -> dict[str, Any]:
    """Return the owner's foreign key as keyword arguments, for filters and new rows."""
    return {owner_kind(owner): owner}


def owner_ids(owner: Tenant) -> dict[str, Any]:
    """Return the IDs of the owner and its department. Announcements and the history use them."""
    if isinstance(owner, Department):
        return {"department_id": owner.pk}
    return {"department_id": owner.department_id, "project_id": owner.pk}


PoolOrGroup = NodePool | QuotaGroup  # a quota applies to a pool or to all pools of a group


def pool_or_group_columns(place: PoolOrGroup) -> dict[str, Any]:
    """Return the foreign key of the pool or quota group as keyword arguments, for filters and new rows."""
    if isinstance(place, QuotaGroup):
        return {"pool": None, "group": place}
    return {"pool": place, "group": None}


def applies_to_any(pools: Iterable[NodePool]) -> Q:
    """Return a filter for the quotas that apply to any of the pools, directly or through their group."""
    members = list(pools)
    return Q(pool__in=members) | Q(group__in={pool.quota_group_id for pool in members} - {None})


class Quota(FastRows):
    """Quota, limit and weight of a department or project, per resource, in a node pool or quota group.

    Amounts are in milli-GPU, milli-CPU and MiB. Null means unlimited. Without a `rank`, the owner's rank
    applies.
    """

    department = models.ForeignKey(
        Department, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas"
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas"
    )
    pool = models.ForeignKey(
        "pools.NodePool", null=True, blank=True, on_delete=models.PROTECT, related_name="quotas"
    )
    group = models.ForeignKey(
        "pools.QuotaGroup", null=True, blank=True, on_delete=models.PROTECT, related_name="quotas"
    )
    gpu_milli = models.BigIntegerField(null=True, blank=True, default=0)
    cpu_milli = models.BigIntegerField(null=True, blank=True)
    memory_mib = models.BigIntegerField(null=True, blank=True)
    limit_gpu_milli = models.BigIntegerField(null=True, blank=True)
    limit_cpu_milli = models.BigIntegerField(null=True, blank=True)
    limit_memory_mib = models.BigIntegerField(null=True, blank=True)
    weight_gpu = models.FloatField(default=1.0)
    weight_cpu = models.FloatField(default=1.0)
    weight_memory = models.FloatField(default=1.0)
    over_quota = models.BooleanField(default=True, help_text="Preemptible workloads may exceed the quota.")
    rank = models.IntegerField(null=True, blank=True)
    version = models.PositiveBigIntegerField(default=1, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["pool__name", "group__name", "department__name", "project__name"]
        constraints = [
            models.CheckConstraint(
                name="quota_has_a_pool_or_a_group",
                condition=Q(pool__isnull=False, group__isnull=True)
                | Q(pool__isnull=True, group__isnull=False),
            ),
            models.CheckConstraint(
                name="quota_has_one_owner",
                condition=Q(department__isnull=False, project__isnull=True)
                | Q(department__isnull=True, project__isnull=False),
            ),
            models.UniqueConstraint(name="quota_once_per_department_and_pool", fields=["department", "pool"]),
            models.UniqueConstraint(name="quota_once_per_project_and_pool", fields=["project", "pool"]),
            models.UniqueConstraint(
                name="quota_once_per_department_and_group", fields=["department", "group"]
            ),
            models.UniqueConstraint(name="quota_once_per_project_and_group", fields=["project", "group"]),
            *(
                models.CheckConstraint(
                    name=f"quota_{field}_range", condition=Q(**{f"{field}__gte": 0, f"{field}__lte": 10**12})
                )
                for field in (
                    "gpu_milli",
                    "cpu_milli",
                    "memory_mib",
                    "limit_gpu_milli",
                    "limit_cpu_milli",
                    "limit_memory_mib",
                )
            ),
            models.CheckConstraint(
                name="quota_weights_range",
                condition=Q(weight_gpu__gte=0, weight_gpu__lte=1e6)
                & Q(weight_cpu__gte=0, weight_cpu__lte=1e6)
                & Q(weight_memory__gte=0, weight_memory__lte=1e6),
            ),
            models.CheckConstraint(name="quota_rank_range", condition=Q(rank__gte=-1000, rank__lte=1000)),
            models.CheckConstraint(
                name="quota_gpu_within_limit",
                condition=Q(limit_gpu_milli__isnull=True)
                | Q(gpu_milli__lte=F("limit_gpu_milli"))
                | Q(gpu_milli__isnull=True),
            ),
        ]

    @property
    def owner(self) -> Department | Project:
        owner = self.department or self.project
        assert owner is not None, "guaranteed by the constraint quota_has_one_owner"
        return owner

    @property
    def pool_or_group(self) -> PoolOrGroup:
        target = self.pool or self.group
        assert target is not None, "guaranteed by the constraint quota_has_a_pool_or_a_group"
        return target

    def __str__(self) -> str:
        return f"{self.owner} in {self.pool_or_group.kind_and_name}"


class RemovedQuota(models.Model):
    """Record of a removed quota. A new quota in its place continues from the last version number,
    `version`.
    """

    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="+")
    pool = models.ForeignKey("pools.NodePool", null=True, on_delete=models.CASCADE, related_name="+")
    group = models.ForeignKey("pools.QuotaGroup", null=True, on_delete=models.CASCADE, related_name="+")
    version = models.PositiveBigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="removed_quota_once",
                fields=["department", "project", "pool", "group"],
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                name="removed_quota_has_one_owner",
                condition=Q(department__isnull=False, project__isnull=True)
                | Q(department__isnull=True, project__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.project or self.department} in {self.pool or self.group}"
