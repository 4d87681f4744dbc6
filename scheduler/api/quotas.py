"""REST endpoints of quota previews and fair-share explanations."""

from typing import Any, Literal

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.requests import etag, no_query, parse_document
from berth.server.api.responses import Amounts, Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.models import NodePool
from projects import selectors
from projects.api.lookups import pool_named
from projects.api.quotas import views as quota_views
from projects.api.quotas.schemas import DraftBody, OwnerKind, Warned
from projects.models import Department, Project
from projects.services.quotas.documents import read_draft
from scheduler.reports.fair_share.trace import share_trace
from scheduler.reports.what_if.quota_preview import oddities, preview


class QuotaEdit(Answer):
    kind: OwnerKind
    name: str
    pool: str
    before: dict[str, Any] | None = Field(description="Null: there is none.")
    after: dict[str, Any] | None = Field(description="Null: it is removed.")


class ShareChange(Answer):
    kind: OwnerKind
    name: str
    pool: str
    before: Amounts
    after: Amounts
    allocated: Amounts


class StartChange(Answer):
    project: str
    workload: str
    pool: str
    gpus: float
    at_once: bool = Field(description="False: the workload starts once evicted workloads have stopped.")


class ReasonChange(Answer):
    project: str
    workload: str
    before: str
    after: str
    message: str


class HiddenAnswer(Answer):
    shares: int
    starts: int
    no_longer_starting: int
    evictions: int
    evicted_gpus: float
    reasons: int


class ImpactAnswer(Answer):
    """Changes in the next cycle; for workloads that you may not see, counts only."""

    changes_nothing: bool
    quotas: list[QuotaEdit]
    shares: list[ShareChange]
    starts: list[StartChange]
    no_longer_starting: list[StartChange]
    evictions: list[dict[str, Any]]
    reasons: list[ReasonChange]
    warnings: list[Warned]
    hidden: HiddenAnswer
    tag: str = Field(description="For If-Match of the application; also in ETag.")


class QuotaPreview(ApiView):
    change_scope = "admin"

    @operation("Preview of quota edits; nothing is stored", body=DraftBody,
               answer=ImpactAnswer)  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        impact = preview(acting=self.acting, draft=read_draft(self.acting, parse_document(request)))
        values = {name: getattr(impact, name) for name in ImpactAnswer.model_fields if name != "hidden"}
        hidden = {name: getattr(impact.hidden, name) for name in HiddenAnswer.model_fields}
        return Response(
            ImpactAnswer(**values, hidden=HiddenAnswer(**hidden)), headers={"ETag": etag(impact.tag)}
        )


class DepartmentQuota(quota_views.DepartmentQuota):
    def oddities(self, owner: Department | Project, pool: NodePool) -> list[Warned]:
        return warnings_of(owner, pool)


class ProjectQuota(quota_views.ProjectQuota):
    def oddities(self, owner: Department | Project, pool: NodePool) -> list[Warned]:
        return warnings_of(owner, pool)


def warnings_of(owner: Department | Project, pool: NodePool) -> list[Warned]:
    return [Warned(**each) for each in oddities(owner, pool)]


class ShareRound(Answer):
    """One round of the division in which the queue took part."""

    phase: Literal["quota", "over_quota", "remainder"]
    rank: int
    remaining: float
    weighted_share: float
    weighted_share_without_usage: float
    offered: float
    granted: float


class ShareTraceEntry(Answer):
    kind: OwnerKind
    name: str
    queue: str = Field(description="Pool or department whose resources are divided.")
    resource: str
    total: float
    share: float
    explanation: list[str]
    rounds: list[ShareRound]


class ShareAnswer(Answer):
    """How the current fair share is computed. Amounts are GPUs, CPUs and MiB."""

    pool: str
    trace: list[ShareTraceEntry] = Field(description="The department first, if you see all of it.")


class ShareTrace(ApiView):
    def owner(self, name: str) -> Department | Project:
        raise NotImplementedError

    @operation("Trace of a fair share", answer=ShareAnswer)
    def get(self, request: Request, name: str, pool: str) -> Response:
        no_query(request)
        owner, where = self.owner(name), pool_named(pool)
        trace = [
            ShareTraceEntry(**{key: getattr(each, key) for key in ShareTraceEntry.model_fields})
            for each in share_trace(acting=self.acting, owner=owner, pool=where)
        ]
        return Response(ShareAnswer(pool=where.name, trace=trace))


class ShareOfDepartment(ShareTrace):
    def owner(self, name: str) -> Department:
        return selectors.find_department(self.acting, name)


class ShareOfProject(ShareTrace):
    def owner(self, name: str) -> Project:
        return selectors.find_project(self.acting, name)
