"""REST endpoints for quota previews and fair-share explanations."""

from typing import Literal

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.lookups import resolve_pool
from projects.api.quotas import views as quota_views
from projects.api.quotas.schemas import OwnerKind, QuotaWarningResponse
from projects.models import Department, Project
from projects.models.tenants import PoolOrGroup, Tenant
from scheduler.reports.fair_share.trace import share_trace
from scheduler.reports.what_if.quota_preview import current_quota_warnings


class DepartmentQuota(quota_views.DepartmentQuota):
    def find_quota_warnings(self, owner: Tenant, pool: PoolOrGroup) -> list[QuotaWarningResponse]:
        return quota_warning_responses(owner, pool)


class ProjectQuota(quota_views.ProjectQuota):
    def find_quota_warnings(self, owner: Tenant, pool: PoolOrGroup) -> list[QuotaWarningResponse]:
        return quota_warning_responses(owner, pool)


def quota_warning_responses(owner: Tenant, pool: PoolOrGroup) -> list[QuotaWarningResponse]:
    return [QuotaWarningResponse(**warning) for warning in current_quota_warnings(owner, pool)]


class ShareRoundResponse(ResponseModel):
    """One round of the fair-share division in which the queue took part."""

    phase: Literal["quota", "over_quota", "remainder"]
    rank: int
    remaining: float
    weighted_share: float
    weighted_share_without_usage: float
    offered: float
    granted: float


class ShareTraceEntryResponse(ResponseModel):
    """Calculation of a queue's share of one resource, step by step, with explanations."""

    kind: OwnerKind
    name: str
    queue: str = Field(description="Pool or department whose resources are divided.")
    resource: str
    total: float
    share: float
    explanation: list[str]
    rounds: list[ShareRoundResponse]


class ShareTraceResponse(ResponseModel):
    """Computation of the current fair share, in GPUs, CPU cores and MiB."""

    pool: str
    trace: list[ShareTraceEntryResponse] = Field(
        description="The department comes first if you may see all of its projects."
    )


class ShareTrace(ApiView):
    def owner(self, name: str) -> Tenant:
        raise NotImplementedError

    @operation("Trace the computation of a fair share", response=ShareTraceResponse)
    def get(self, request: Request, name: str, pool: str) -> Response:
        owner, node_pool = self.owner(name), resolve_pool(pool)
        trace = [
            ShareTraceEntryResponse.from_row(trace)
            for trace in share_trace(actor=self.actor, owner=owner, pool=node_pool)
        ]
        return Response(ShareTraceResponse(pool=node_pool.name, trace=trace))


class DepartmentShareTrace(ShareTrace):
    def owner(self, name: str) -> Department:
        return selectors.find_department(self.actor, name)


class ProjectShareTrace(ShareTrace):
    def owner(self, name: str) -> Project:
        return selectors.find_project(self.actor, name)
