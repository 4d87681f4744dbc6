"""Departments, projects, quotas and fair shares."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model, Numbers


class Department(Model):
    name: str
    title: str = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class Project(Model):
    name: str
    department: str = ""
    title: str = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class Quota(Model):
    owner: dict[str, str]
    pool: str
    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None
    limit: dict[str, float | None] = {}
    weight: float | dict[str, float] = 1
    over_quota: bool = True
    rank: int | None = None
    version: int = 0
    standing: dict[str, Any] | None = None


class StoredQuota(Quota):
    """A stored quota; `warnings` point out unusual values."""

    warnings: list[dict[str, str]] = []


class QuotaImpact(Model):
    """Effects of quota changes; passing `tag` to `apply` detects changes made since the preview."""

    changes_nothing: bool = False
    tag: str = ""
    quotas: list[Numbers] = []
    shares: list[Numbers] = []
    starts: list[Numbers] = []
    no_longer_starting: list[Numbers] = []
    evictions: list[Numbers] = []
    reasons: list[Numbers] = []
    warnings: list[Numbers] = []
    hidden: Numbers = {}


class QuotaChange(Model):
    """Quota changes that were applied together."""

    id: int
    at: datetime
    actor: str = ""
    comment: str = ""
    reverts: int | None = None
    reverted_by: int | None = None
    expires_at: datetime | None = None
    expired: str | None = None
    quotas: list[Numbers] = []
    hidden: int = 0


class ShareTraceEntry(Model):
    """How a queue's share of one resource is computed, in `rounds` of numbers and in sentences."""

    kind: str
    name: str
    queue: str = ""
    resource: str = "gpu"
    total: float = 0
    share: float = 0
    explanation: list[str] = []
    rounds: list[Numbers] = []


class ShareTrace(Model):
    pool: str
    trace: list[ShareTraceEntry] = []
