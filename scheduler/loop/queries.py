"""Database queries that several steps of the scheduler loop share."""

from berth.db.queries.compiled import compiled_once
from pools.models import NodePool, QuotaGroup
from projects.models import Project, Quota

QUOTA_GROUPS = compiled_once(lambda: QuotaGroup.objects.order_by("pk"))
QUOTAS = compiled_once(lambda: Quota.objects.order_by("pk"))
POOLS = compiled_once(lambda: NodePool.objects.order_by("name"))
PROJECTS = compiled_once(lambda keys: Project.objects.select_related("department").filter(pk__any=keys))
