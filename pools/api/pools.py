"""REST endpoints of node pools: list, create, edit, pause and drain."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.core.problems import shown
from berth.core.spec.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    NoBody,
    Query,
    Word,
    etag,
    no_query,
    optional_version,
    parse_body,
    parse_query,
)
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools import selectors, services
from pools.api.capacity import pool_capacity
from pools.api.draining import ScaledAnswer, with_draining
from pools.api.pool_shapes import NewPool, PoolAnswer, PoolValues, answer
from pools.models import NodePool, ScalingEvent

BY_NAME = Order("name", ("name",))
LATEST = Order("latest", ("at", "id"), down=True)


class HistoryQuery(ListQuery):
    kind: Word | None = None


class EditQuery(Query):
    dry_run: Annotated[
        bool, Field(description="Return the edited pool and the nodes to drain without storing anything.")
    ] = False


class ScalingAnswer(Answer):
    id: int
    at: datetime
    kind: str
    node: str | None
    before: int | None
    after: int | None
    reason: str
    data: dict[str, Any]


class Because(Body):
    reason: Annotated[Text, Field(max_length=200)] = ""


class PoolView(ApiView):
    change_scope = "admin"

    def visible(self) -> QuerySet[NodePool]:
        """Return all pools, or none for an account without a role."""
        rows = selectors.pools()
        return rows if self.allowed("view_capacity") else rows.none()

    def get_pool(self, name: str) -> NodePool:
        pool = self.visible().filter(name=name).first()
        if pool is None:
            raise NotFound(f"No node pool is named {shown(name)}.")
        return pool

    def pool_response(self, name: str) -> Response:
        """Return the pool's current state, read again with its counts."""
        pool = self.get_pool(name)
        running_it = self.allowed("administer")
        shape = answer(pool, pool_capacity([pool.pk]), running_it=running_it)
        return Response(shape, headers={"ETag": etag(pool.version)})


class Pools(PoolView):
    @operation("List node pools with their free capacity", query=ListQuery, page=PoolAnswer)
    def get(self, request: Request) -> Response:
        running_it = self.allowed("administer")

        def answers(rows: Sequence[NodePool]) -> list[Any]:
            room = pool_capacity([row.pk for row in rows])
            return [answer(row, room, running_it=running_it) for row in rows]

        return Response(page(self.visible(), parse_query(request, ListQuery), BY_NAME, answers))

    @operation("Create a node pool", body=NewPool, answer=PoolAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        self.require("administer")
        pool = services.create_pool(acting=self.acting, **parse_body(request, NewPool).columns())
        response = self.pool_response(pool.name)
        return created(response.data, f"/api/v1/node-pools/{pool.name}", ETag=response["ETag"])


class OnePool(PoolView):
    @operation("Get a node pool", answer=PoolAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        return self.pool_response(name)

    @operation(
        "Edit a node pool, or preview the nodes to drain", query=EditQuery, body=PoolValues,
        answer=ScaledAnswer, headers=("If-Match",),
    )  # fmt: skip
    def patch(self, request: Request, name: str) -> Response:
        query, pool = parse_query(request, EditQuery), self.get_pool(name)
        self.require("administer")
        changes = parse_body(request, PoolValues).columns()
        version = optional_version(request, pool.version)
        if query.dry_run:
            pool = services.preview_edit(pool, changes)
        else:
            services.edit_pool(acting=self.acting, pool=pool, changes=changes, version=version)
            pool = self.get_pool(name)
        return Response(with_draining(pool, timezone.now()), headers={"ETag": etag(pool.version)})

    @operation("Delete a node pool that was never used", status=204)
    def delete(self, request: Request, name: str) -> Response:
        no_query(request)
        pool = self.get_pool(name)
        self.require("administer")
        services.delete_pool(acting=self.acting, pool=pool)
        return no_content()


class PoolAction(PoolView):
    service: ClassVar[Callable[..., NodePool]]

    def perform(self, request: Request, name: str) -> Response:
        no_query(request)
        pool = self.get_pool(name)
        self.require("administer")
        parse_body(request, NoBody)
        type(self).service(acting=self.acting, pool=pool)
        return self.pool_response(name)


class PausePool(PoolAction):
    service = staticmethod(services.pause_pool)

    @operation("Pause scaling of a node pool", answer=PoolAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        return self.perform(request, name)


class ResumePool(PoolAction):
    service = staticmethod(services.resume_pool)

    @operation("Resume a paused or drained node pool", answer=PoolAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        return self.perform(request, name)


class RetryPool(PoolAction):
    service = staticmethod(services.retry_pool)

    @operation("Retry provisioning after failed boots", answer=PoolAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        return self.perform(request, name)


class DrainPool(PoolView):
    @operation("Drain all nodes of a pool", body=Because, answer=PoolAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        no_query(request)
        pool = self.get_pool(name)
        self.require("administer")
        services.drain_pool(acting=self.acting, pool=pool, reason=parse_body(request, Because).reason)
        return self.pool_response(name)


class PoolHistory(PoolView):
    @operation("List scaling events, newest first", query=HistoryQuery, page=ScalingAnswer)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, HistoryQuery)
        rows = selectors.scaling_events(self.get_pool(name))
        if query.kind is not None:
            rows = rows.filter(kind=query.kind)
        running_it = self.allowed("administer")
        return Response(page(rows, query, LATEST, lambda events: _answers(events, running_it=running_it)))


def _answers(rows: Sequence[ScalingEvent], *, running_it: bool) -> list[Any]:
    return [
        ScalingAnswer(
            id=row.pk, at=row.at, kind=row.kind, node=row.node.name if row.node else None, before=row.before,
            after=row.after, reason=selectors.reason_of(row, running_it=running_it),
            data=row.data if running_it else {},
        )
        for row in rows
    ]  # fmt: skip
