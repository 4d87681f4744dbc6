"""REST models for quotas and drafts."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from berth.core.spec.values.quantities import Moment
from berth.server.api.requests import Body
from berth.server.api.responses import Amounts, ResponseModel, to_amounts
from projects.models import Quota
from projects.models.tenants import owner_kind
from projects.services.quotas import quota_values
from projects.services.quotas.documents import MAX_CHANGES, MAX_COMMENT

Count = Annotated[float, Field(ge=0, le=1e9)] | None
Weight = Annotated[float, Field(ge=0, le=1e6)]


class Limits(Body):
    gpu: Count = None
    cpu: Count = None
    memory_mib: Annotated[int, Field(ge=0, le=10**12)] | None = None


class Weights(Body):
    gpu: Weight = 1.0
    cpu: Weight = 1.0
    memory_mib: Weight = 1.0


class QuotaValues(Body):
    """Quota values in GPUs, CPU cores and MiB.

    Null means unlimited. Omitted values stay unchanged.
    """

    gpu: Count = 0
    cpu: Count = None
    memory_mib: Annotated[int, Field(ge=0, le=10**12)] | None = None
    limit: Limits | None = None
    weight: Weight | Weights = 1.0
    over_quota: bool = True
    rank: Annotated[int, Field(ge=-1000, le=1000)] | None = None


class DraftChange(Body):
    """One change in a draft: the owner, the pool, and the new values or a removal."""

    project: str | None = None
    department: str | None = None
    pool: Annotated[str, Field(description="Node pool or quota group.")]
    set: QuotaValues | None = None
    remove: bool = False


class DraftBody(Body):
    """Quota changes to apply together. Each quota may occur only once."""

    changes: Annotated[list[DraftChange], Field(min_length=1, max_length=MAX_CHANGES)]
    comment: Annotated[str, Field(max_length=MAX_COMMENT)] = ""
    expires_at: Annotated[Moment | None, Field(description="Time of the automatic revert.")] = None


OwnerKind = Literal["department", "project"]


class Owner(ResponseModel):
    kind: OwnerKind
    name: str


class DecayedUsageResponse(ResponseModel):
    """Decayed usage of each resource."""

    gpu: float
    cpu: float
    memory_mib: float


class QueueStatusResponse(ResponseModel):
    """Fair share, allocation, reservations and demand of a queue in the last cycle."""

    share: Amounts
    allocated: Amounts = Field(description="Resources that pods hold.")
    reserved: Amounts = Field(description="Resources set aside for replicas that cannot start yet.")
    requested: Amounts
    usage: DecayedUsageResponse


class WeightsResponse(ResponseModel):
    gpu: float
    cpu: float
    memory_mib: float


class QuotaResponse(ResponseModel):
    owner: Owner
    pool: str = Field(description="Node pool or quota group.")
    pools: dict[str, QueueStatusResponse | None] | None = Field(
        description="Status by pool if the quota counts in a quota group; otherwise null."
    )
    gpu: float | None
    cpu: float | None
    memory_mib: int | None
    limit: Amounts
    weight: float | WeightsResponse
    over_quota: bool
    rank: int | None
    version: int
    status: QueueStatusResponse | None = Field(
        description="Status in the pool; null before the first cycle and for a quota group."
    )


class QuotaWarningResponse(ResponseModel):
    code: str
    pool: str
    queue: str
    message: str


class StoredQuotaResponse(QuotaResponse):
    warnings: list[QuotaWarningResponse] = Field(description="Unusual values; the quota is stored anyway.")


def serialize_quota(quota: Quota) -> QuotaResponse:
    owner = quota.owner
    values = quota_values(quota)
    weight = values.pop("weight")
    equal_weights = len(set(weight.values())) == 1
    return QuotaResponse(
        owner=Owner(kind=owner_kind(owner), name=owner.name),
        pool=quota.pool_or_group.name,
        pools=_group_statuses(quota),
        weight=weight["gpu"] if equal_weights else WeightsResponse(**weight),
        version=quota.version,
        status=_find_status(quota),
        **values,
    )


def _find_status(quota: Quota) -> QueueStatusResponse | None:
    return None if quota.pool_id is None else _find_pool_status(quota, quota.pool_id)


def _group_statuses(quota: Quota) -> dict[str, QueueStatusResponse | None] | None:
    if quota.group is None:
        return None
    pools = sorted(quota.group.pools.all(), key=lambda pool: pool.name)
    return {pool.name: _find_pool_status(quota, pool.pk) for pool in pools}


def _find_pool_status(quota: Quota, pool_id: int) -> QueueStatusResponse | None:
    rows: Iterable[Any] = quota.owner.queue_statuses.all()
    status = next((row for row in rows if row.pool_id == pool_id), None)
    return None if status is None else serialize_status(status)


def serialize_status(row: Any) -> QueueStatusResponse:
    """Serialize a `QueueStatus` row.

    The parameter is untyped because this app does not import the scheduler.
    """
    gpu, cpu, memory = row.usage
    return QueueStatusResponse(
        share=to_amounts(*row.share),
        allocated=to_amounts(*row.allocated),
        reserved=to_amounts(*row.reserved),
        requested=to_amounts(*row.requested),
        usage=DecayedUsageResponse(gpu=gpu, cpu=cpu, memory_mib=memory),
    )
