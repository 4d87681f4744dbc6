"""REST models of quotas and drafts."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from berth.core.spec.quantities import Moment
from berth.server.api.requests import Body
from berth.server.api.responses import Amounts, Answer, amounts
from projects.models import Department, Quota
from projects.services.quotas import values_of
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
    """Values of a quota in devices, cores and MiB; null is unlimited, missing values stay unchanged."""

    gpu: Count = 0
    cpu: Count = None
    memory_mib: Annotated[int, Field(ge=0, le=10**12)] | None = None
    limit: Limits | None = None
    weight: Weight | Weights = 1.0
    over_quota: bool = True
    rank: Annotated[int, Field(ge=-1000, le=1000)] | None = None


class DraftChange(Body):
    """One quota of a draft: owner, pool, and the values to set or the removal."""

    project: str | None = None
    department: str | None = None
    pool: str
    set: QuotaValues | None = None
    remove: bool = False


class DraftBody(Body):
    """Quotas to change together; each occurs once."""

    changes: Annotated[list[DraftChange], Field(min_length=1, max_length=MAX_CHANGES)]
    comment: Annotated[str, Field(max_length=MAX_COMMENT)] = ""
    expires_at: Annotated[Moment | None, Field(description="Then what it set goes back by itself.")] = None


OwnerKind = Literal["department", "project"]


class Owner(Answer):
    kind: OwnerKind
    name: str


class Used(Answer):
    """Decayed usage by resource."""

    gpu: float
    cpu: float
    memory_mib: float


class Standing(Answer):
    """Fair share, allocation and demand of a queue in the last cycle."""

    share: Amounts
    allocated: Amounts
    requested: Amounts
    usage: Used


class EachWeight(Answer):
    gpu: float
    cpu: float
    memory_mib: float


class QuotaAnswer(Answer):
    owner: Owner
    pool: str
    gpu: float | None
    cpu: float | None
    memory_mib: int | None
    limit: Amounts
    weight: float | EachWeight
    over_quota: bool
    rank: int | None
    version: int
    standing: Standing | None


class Warned(Answer):
    code: str
    pool: str
    queue: str
    message: str


class QuotaSetAnswer(QuotaAnswer):
    warnings: list[Warned] = Field(description="Unusual values. The quota is stored nevertheless.")


def answer(quota: Quota) -> QuotaAnswer:
    owner = quota.owner
    values = values_of(quota)
    weight = values.pop("weight")
    alike = len(set(weight.values())) == 1
    return QuotaAnswer(
        owner=Owner(kind="department" if isinstance(owner, Department) else "project", name=owner.name),
        pool=quota.pool.name,
        weight=weight["gpu"] if alike else EachWeight(**weight),
        version=quota.version,
        standing=_standing(quota),
        **values,
    )


def _standing(quota: Quota) -> Standing | None:
    """Return the standing of a quota from prefetched rows: a queue has only a few pools."""
    rows: Iterable[Any] = quota.owner.standings.all()
    standing = next((row for row in rows if row.pool_id == quota.pool_id), None)
    return None if standing is None else standing_of(standing)


def standing_of(row: Any) -> Standing:
    """Present a standing, a row of the scheduler's tables that this app reads by attribute."""
    gpu, cpu, memory = row.usage
    return Standing(
        share=amounts(*row.share),
        allocated=amounts(*row.allocated),
        requested=amounts(*row.requested),
        usage=Used(gpu=gpu, cpu=cpu, memory_mib=memory),
    )
