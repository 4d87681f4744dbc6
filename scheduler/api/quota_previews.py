"""REST endpoints that preview changes to quotas and quota groups."""

from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.requests import etag, parse_body, parse_document
from berth.server.api.responses import Amounts, ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.access import Action
from projects.api.quotas.groups import QuotaGroupBody, resolve_pools
from projects.api.quotas.schemas import DraftBody, OwnerKind, QuotaWarningResponse
from projects.services.quotas.documents import read_draft
from scheduler.reports.what_if.group_preview import preview_group
from scheduler.reports.what_if.quota_preview import preview_draft


class QuotaEditResponse(ResponseModel):
    kind: OwnerKind
    name: str
    pool: str = Field(description="Node pool or quota group.")
    group: bool = Field(description="Whether `pool` is a quota group.")
    before: dict[str, Any] | None = Field(description="Null if there is no quota.")
    after: dict[str, Any] | None = Field(description="Null if the quota would be removed.")


class ShareChangeResponse(ResponseModel):
    kind: OwnerKind
    name: str
    pool: str
    before: Amounts
    after: Amounts
    allocated: Amounts


class StartChangeResponse(ResponseModel):
    project: str
    workload: str
    pool: str
    gpus: float
    immediately: bool = Field(
        description="False if the workload starts only once evicted workloads have stopped."
    )


class ReasonChangeResponse(ResponseModel):
    project: str
    workload: str
    before: str
    after: str
    message: str


class HiddenChangesResponse(ResponseModel):
    shares: int
    starts: int
    no_longer_starting: int
    evictions: int
    evicted_gpus: float
    reasons: int


class _PlanChanges(ResponseModel):
    changes_nothing: bool
    shares: list[ShareChangeResponse]
    starts: list[StartChangeResponse]
    no_longer_starting: list[StartChangeResponse]
    evictions: list[dict[str, Any]]
    reasons: list[ReasonChangeResponse]
    hidden: HiddenChangesResponse


class QuotaImpactResponse(_PlanChanges):
    """Predicted changes in the next cycle. Workloads that are hidden from you are counted but not listed."""

    quotas: list[QuotaEditResponse]
    warnings: list[QuotaWarningResponse]
    tag: str = Field(description="Value for If-Match when you apply the draft; also sent as ETag.")


class QuotaPreview(ApiView):
    change_scope = "admin"

    @operation("Preview quota edits without storing them", body=DraftBody,
               response=QuotaImpactResponse)  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        impact = preview_draft(actor=self.actor, draft=read_draft(self.actor, parse_document(request)))
        return Response(QuotaImpactResponse.from_row(impact), headers={"ETag": etag(impact.tag)})


class QuotaInPoolResponse(ResponseModel):
    kind: OwnerKind
    name: str
    pool: str
    before: Amounts = Field(
        description="Quota that counts in the pool: of a group, excluding allocations in its other pools."
    )
    after: Amounts
    allocated: Amounts = Field(description="Allocated in the pool now.")


class OverQuotaResponse(ResponseModel):
    """Running workload with pods that are within quota now, but would be over quota after the change."""

    kind: OwnerKind = Field(description="Kind of the queue whose quota they would exceed.")
    name: str
    pool: str
    project: str
    workload: str
    pods: int
    gpus: float


class QuotaGroupImpactResponse(_PlanChanges):
    """Predicted changes in the next cycle if the quota group contained `pools_after` instead of
    `pools_before`.
    """

    pools_before: list[str]
    pools_after: list[str]
    quotas: list[QuotaInPoolResponse] = Field(description="Queues whose quota in a pool would change.")
    over_quota: list[OverQuotaResponse]
    tag: str = Field(description="Value for If-Match when you change the pools; also sent as ETag.")


class QuotaGroupPreview(ApiView):
    change_scope = "admin"

    @operation("Preview a change of a quota group's pools without storing it", body=QuotaGroupBody,
               response=QuotaGroupImpactResponse)  # fmt: skip
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        group = selectors.find_quota_group(self.actor, name)
        self.require(Action.ADMINISTER)
        pools = resolve_pools(parse_body(request, QuotaGroupBody).pools)
        impact = preview_group(actor=self.actor, group=group, pools=pools)
        return Response(QuotaGroupImpactResponse.from_row(impact), headers={"ETag": etag(impact.tag)})
