"""REST endpoints of quotas."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.server.api.pagination import Order, page
from berth.server.api.requests import (
    ListQuery,
    Word,
    etag,
    expected_version,
    no_query,
    parse_document,
    parse_query,
)
from berth.server.api.responses import created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.models import NodePool
from projects import selectors
from projects.api.lookups import pool_named
from projects.api.quotas.schemas import QuotaAnswer, QuotaSetAnswer, QuotaValues, Warned, answer
from projects.models import Department, Project, Quota
from projects.services import quotas

OLDEST = Order("oldest", ("id",))
GUARDS = ("If-Match", "If-None-Match")


class QuotasQuery(ListQuery):
    pool: Word | None = None
    department: Word | None = None
    project: Word | None = None


class Quotas(ApiView):
    @operation("List quotas", query=QuotasQuery, page=QuotaAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, QuotasQuery)
        rows = with_standings(selectors.quotas(self.acting))
        if query.pool is not None:
            rows = rows.filter(pool__name=query.pool)
        if query.department is not None:
            rows = rows.filter(department__name=query.department)
        if query.project is not None:
            rows = rows.filter(project__name=query.project)
        return Response(page(rows, query, OLDEST, presented))


class OneQuota(ApiView):
    """The quota of one owner in one pool."""

    change_scope = "admin"
    kind: ClassVar[str]

    def owner(self, name: str) -> Department | Project:
        raise NotImplementedError

    def oddities(self, owner: Department | Project, pool: NodePool) -> list[Warned]:
        """Return warnings about unusual values. The scheduler's views compare the quota with allocations."""
        raise NotImplementedError

    @operation("Get a quota", answer=QuotaAnswer)
    def get(self, request: Request, name: str, pool: str) -> Response:
        no_query(request)
        quota = self._present(self.owner(name), pool_named(pool))
        if quota is None:
            raise NotFound("There is no such quota.")
        return Response(answer(quota), headers={"ETag": etag(quota.version)})

    @operation("Set a quota", body=QuotaValues, answer=QuotaSetAnswer, headers=GUARDS, also_status=201)
    def put(self, request: Request, name: str, pool: str) -> Response:
        no_query(request)
        owner, node_pool = self.owner(name), pool_named(pool)
        self.require("set_quota", owner)
        present = self._present(owner, node_pool)
        expected = expected_version(request, present.version if present else None)
        quota = quotas.set_quota(
            acting=self.acting,
            owner=owner,
            pool=node_pool,
            values=parse_document(request),
            expected_version=expected,
        )
        odd = self.oddities(owner, node_pool)
        stored, tag = QuotaSetAnswer(**dict(answer(quota)), warnings=odd), etag(quota.version)
        if present is None:
            return created(stored, f"/api/v1/quotas/{self.kind}/{name}/{pool}", ETag=tag)
        return Response(stored, headers={"ETag": tag})

    @operation("Delete a quota", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str, pool: str) -> Response:
        no_query(request)
        owner, node_pool = self.owner(name), pool_named(pool)
        self.require("set_quota", owner)
        present = self._present(owner, node_pool)
        if present is None:
            raise NotFound("There is no such quota.")
        expected = expected_version(request, present.version)
        quotas.remove_quota(acting=self.acting, quota=present, expected_version=expected)
        return no_content()

    def _present(self, owner: Department | Project, pool: NodePool) -> Quota | None:
        whose = {"department": owner} if isinstance(owner, Department) else {"project": owner}
        return with_standings(selectors.quotas(self.acting)).filter(pool=pool, **whose).first()


class DepartmentQuota(OneQuota):
    kind = "departments"

    def owner(self, name: str) -> Department:
        return selectors.find_department(self.acting, name)


class ProjectQuota(OneQuota):
    kind = "projects"

    def owner(self, name: str) -> Project:
        return selectors.find_project(self.acting, name)


def with_standings(rows: QuerySet[Quota]) -> QuerySet[Quota]:
    return rows.prefetch_related("project__standings", "department__standings")


def presented(rows: Sequence[Quota]) -> list[Any]:
    return [answer(row) for row in rows]
