"""REST endpoints for quotas."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.db.queries.known_names import check_names
from berth.server.api.pagination import Order, filter_by, page
from berth.server.api.requests import (
    ListQuery,
    Word,
    etag,
    expected_version,
    parse_document,
    parse_query,
)
from berth.server.api.responses import created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.models import QuotaGroup
from projects import selectors
from projects.api.lookups import resolve_pool_or_group
from projects.api.quotas.schemas import (
    QuotaResponse,
    QuotaValues,
    QuotaWarningResponse,
    StoredQuotaResponse,
    serialize_quota,
)
from projects.known_names import (
    unknown_department_problem,
    unknown_pool_or_group_problem,
    unknown_project_problem,
)
from projects.models import Department, Project, Quota
from projects.models.tenants import (
    PoolOrGroup,
    Tenant,
    owner_columns,
    owner_kind,
    pool_or_group_columns,
)
from projects.services import quotas

OLDEST = Order("oldest", ("id",))
PRECONDITION_HEADERS = ("If-Match", "If-None-Match")


class QuotasQuery(ListQuery):
    pool: Word | None = None
    department: Word | None = None
    project: Word | None = None


class Quotas(ApiView):
    @operation("List quotas", query=QuotasQuery, page=QuotaResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, QuotasQuery)
        check_names(
            unknown_pool_or_group_problem(self.actor, query.pool),
            unknown_department_problem(self.actor, query.department),
            unknown_project_problem(self.actor, query.project),
        )
        rows = prefetch_queue_statuses(selectors.quotas(self.actor))
        rows = filter_by(rows, department__name=query.department, project__name=query.project)
        if query.pool is not None:
            groups = QuotaGroup.objects.filter(Q(name=query.pool) | Q(pools__name=query.pool))
            rows = rows.filter(Q(pool__name=query.pool) | Q(group__in=groups))
        return Response(page(rows, query, OLDEST, serialize_quotas))


class QuotaDetail(ApiView):
    """Base view for an owner's quota in one pool or quota group."""

    change_scope = "admin"
    kind: ClassVar[str]

    def owner(self, name: str) -> Tenant:
        raise NotImplementedError

    def find_quota_warnings(self, owner: Tenant, pool: PoolOrGroup) -> list[QuotaWarningResponse]:
        """Return warnings about unusual quota values. The scheduler API overrides this method."""
        raise NotImplementedError

    @operation("Get a quota", response=QuotaResponse)
    def get(self, request: Request, name: str, pool: str) -> Response:
        owner, node_pool = self.owner(name), resolve_pool_or_group(pool)
        quota = self._find_quota(owner, node_pool)
        if quota is None:
            raise _missing_quota_error(owner, node_pool)
        return Response(serialize_quota(quota), headers={"ETag": etag(quota.version)})

    @operation(
        "Set a quota",
        body=QuotaValues,
        response=StoredQuotaResponse,
        headers=PRECONDITION_HEADERS,
        also_status=201,
    )
    def put(self, request: Request, name: str, pool: str) -> Response:
        owner, node_pool = self.owner(name), resolve_pool_or_group(pool)
        self.require("set_quota", owner)
        existing = self._find_quota(owner, node_pool)
        expected = expected_version(request, existing.version if existing else None)
        quota = quotas.set_quota(
            actor=self.actor,
            owner=owner,
            pool=node_pool,
            values=parse_document(request),
            expected_version=expected,
        )
        warnings = self.find_quota_warnings(owner, node_pool)
        stored = StoredQuotaResponse(**dict(serialize_quota(quota)), warnings=warnings)
        tag = etag(quota.version)
        if existing is None:
            return created_response(stored, f"/api/v1/quotas/{self.kind}/{name}/{pool}", ETag=tag)
        return Response(stored, headers={"ETag": tag})

    @operation("Delete a quota", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str, pool: str) -> Response:
        owner, node_pool = self.owner(name), resolve_pool_or_group(pool)
        self.require("set_quota", owner)
        existing = self._find_quota(owner, node_pool)
        if existing is None:
            raise _missing_quota_error(owner, node_pool)
        expected = expected_version(request, existing.version)
        quotas.remove_quota(actor=self.actor, quota=existing, expected_version=expected)
        return no_content()

    def _find_quota(self, owner: Tenant, pool: PoolOrGroup) -> Quota | None:
        rows = prefetch_queue_statuses(selectors.quotas(self.actor))
        return rows.filter(**pool_or_group_columns(pool), **owner_columns(owner)).first()


def _missing_quota_error(owner: Tenant, pool: PoolOrGroup) -> NotFound:
    return NotFound(
        f"{owner_kind(owner).capitalize()} {owner.name} has no quota in {pool.kind_and_name}. "
        "List quotas with `berth quota show`."
    )


class DepartmentQuota(QuotaDetail):
    kind = "departments"

    def owner(self, name: str) -> Department:
        return selectors.find_department(self.actor, name)


class ProjectQuota(QuotaDetail):
    kind = "projects"

    def owner(self, name: str) -> Project:
        return selectors.find_project(self.actor, name)


def prefetch_queue_statuses(rows: QuerySet[Quota]) -> QuerySet[Quota]:
    return rows.prefetch_related("project__queue_statuses", "department__queue_statuses", "group__pools")


def serialize_quotas(rows: Sequence[Quota]) -> list[Any]:
    return [serialize_quota(row) for row in rows]
