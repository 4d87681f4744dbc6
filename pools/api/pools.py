"""REST endpoints that list, create, edit, pause and drain node pools."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from django.db.models import QuerySet
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import NameColumn, check_names, unknown_value_problem
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    NoBody,
    Query,
    Word,
    etag,
    optional_version,
    parse_body,
    parse_query,
)
from berth.server.api.responses import Amounts, ResponseModel, created_response, from_milli, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from berth.server.wiring import load_wiring
from pools import selectors, services
from pools.api.schemas.capacity import pool_capacity
from pools.api.schemas.draining import ScaledPoolResponse, scaled_pool_response
from pools.api.schemas.pools import CreatePoolBody, NodePoolResponse, PoolValues, to_pool_response
from pools.models import NodePool, ScalingEvent
from pools.models.scaling import ScalingKind
from pools.providers.base import Shape
from pools.providers.preview import Preview, PreviewedNode

BY_NAME = Order("name", ("name",))
NODES_SHOWN = 500
LATEST = Order("latest", ("at", "id"), is_descending=True)


class HistoryQuery(ListQuery):
    kind: Word | None = None


class EditQuery(Query):
    dry_run: Annotated[
        bool, Field(description="Return the edited pool and the nodes to drain without storing anything.")
    ] = False


class CreateQuery(Query):
    dry_run: Annotated[
        bool,
        Field(
            description="Return the nodes that the provider finds, and what would prevent their use, without "
            "creating the pool. This calls the provider and can take some seconds."
        ),
    ] = False


class PreviewedNodeResponse(ResponseModel):
    name: str
    details: str
    obstacle: str | None = Field(
        description="Reason why the pool leaves the node out; null if it can be used."
    )
    gpu_model: str
    total: Amounts
    free: Amounts = Field(description="Resources that others do not use.")
    host_key: str | None = Field(
        description="Public key that an SSH host presented; null if a key is pinned, or for other providers."
    )


class PreviewFindingResponse(ResponseModel):
    severity: Literal["error", "warning"] = Field(description="`error`: the pool would not work.")
    message: str
    remedy: str


class PoolPreviewResponse(ResponseModel):
    """Nodes that a new pool could use, and problems to review before creating the pool."""

    source: str = Field(
        description="The system that was examined, for example a cluster with its version and address."
    )
    nodes: list[PreviewedNodeResponse] = Field(description=f"The first {NODES_SHOWN} nodes.")
    nodes_total: int
    nodes_usable: int
    total: Amounts = Field(description="Resources of the nodes that can be used.")
    free: Amounts = Field(description="Resources of these nodes that are not used by others.")
    findings: list[PreviewFindingResponse]

    @classmethod
    def from_preview(cls, preview: Preview) -> "PoolPreviewResponse":
        usable = preview.usable_nodes
        return cls(
            source=preview.source,
            nodes=[_node_response(node) for node in preview.nodes[:NODES_SHOWN]],
            nodes_total=len(preview.nodes),
            nodes_usable=len(usable),
            total=_sum_shapes(node.total for node in usable),
            free=_sum_shapes(node.free for node in usable),
            findings=[
                PreviewFindingResponse(severity=each.severity.value, message=each.message, remedy=each.remedy)
                for each in preview.findings
            ],
        )


def _node_response(node: PreviewedNode) -> PreviewedNodeResponse:
    return PreviewedNodeResponse(
        name=node.name, details=node.details, obstacle=node.obstacle or None,
        gpu_model=node.total.gpu_model, total=_sum_shapes([node.total]), free=_sum_shapes([node.free]),
        host_key=node.host_key or None,
    )  # fmt: skip


def _sum_shapes(shapes: Iterable[Shape]) -> Amounts:
    shapes = list(shapes)
    return Amounts(
        gpu=sum(shape.gpus for shape in shapes),
        cpu=from_milli(sum(shape.cpu_milli for shape in shapes)) or 0,
        memory_mib=sum(shape.memory_mib for shape in shapes),
    )


class ScalingEventResponse(ResponseModel):
    id: int
    at: datetime
    kind: str
    node: str | None
    before: int | None
    after: int | None
    reason: str
    data: dict[str, Any]


class ReasonBody(Body):
    reason: Annotated[Text, Field(max_length=200)] = ""


class PoolView(ApiView):
    change_scope = "admin"

    def visible_pools(self) -> QuerySet[NodePool]:
        """Return all pools, or none for an account without a role."""
        rows = selectors.pools()
        return rows if self.is_allowed("view_capacity") else rows.none()

    def get_pool(self, name: str) -> NodePool:
        pool = self.visible_pools().filter(name=name).first()
        if pool is None:
            raise not_found_error(ObjectKind.POOL, name=name, visible=NameColumn(self.visible_pools()).list())
        return pool

    def get_administered_pool(self, name: str) -> NodePool:
        pool = self.get_pool(name)
        self.require("administer")
        return pool

    def pool_response(self, name: str) -> Response:
        """Reload the pool with its node counts, and return its response."""
        pool = self.get_pool(name)
        is_admin = self.is_allowed("administer")
        response_data = to_pool_response(pool, pool_capacity([pool.pk]), is_admin=is_admin)
        return Response(response_data, headers={"ETag": etag(pool.version)})


class Pools(PoolView):
    def is_slow_dry_run(self, request: Request) -> bool:
        return parse_query(request, CreateQuery).dry_run

    @operation("List node pools with their free capacity", query=ListQuery, page=NodePoolResponse)
    def get(self, request: Request) -> Response:
        is_admin = self.is_allowed("administer")

        def to_responses(rows: Sequence[NodePool]) -> list[Any]:
            capacity_by_pool = pool_capacity([row.pk for row in rows])
            return [to_pool_response(row, capacity_by_pool, is_admin=is_admin) for row in rows]

        return Response(page(self.visible_pools(), parse_query(request, ListQuery), BY_NAME, to_responses))

    @operation(
        "Create a node pool, or preview the nodes that it would use", query=CreateQuery, body=CreatePoolBody,
        response=NodePoolResponse, status=201, alternative=(200, PoolPreviewResponse),
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        self.require("administer")
        values = parse_body(request, CreatePoolBody).column_values()
        if self.is_slow_dry_run(request):
            preview = services.preview_pool(provider_for=load_wiring().provider_for, **values)
            return Response(PoolPreviewResponse.from_preview(preview))
        pool = services.create_pool(actor=self.actor, **values)
        response = self.pool_response(pool.name)
        return created_response(response.data, f"/api/v1/node-pools/{pool.name}", ETag=response["ETag"])


class PoolDetail(PoolView):
    @operation("Get a node pool", response=NodePoolResponse)
    def get(self, request: Request, name: str) -> Response:
        return self.pool_response(name)

    @operation(
        "Edit a node pool, or preview the nodes to drain", query=EditQuery, body=PoolValues,
        response=ScaledPoolResponse, headers=("If-Match",),
    )  # fmt: skip
    def patch(self, request: Request, name: str) -> Response:
        query, pool = parse_query(request, EditQuery), self.get_pool(name)
        self.require("administer")
        changes = parse_body(request, PoolValues).column_values()
        version = optional_version(request, pool.version)
        if query.dry_run:
            pool = services.preview_edit(pool, changes)
        else:
            services.edit_pool(actor=self.actor, pool=pool, changes=changes, version=version)
            pool = self.get_pool(name)
        return Response(scaled_pool_response(pool, timezone.now()), headers={"ETag": etag(pool.version)})

    @operation("Delete a node pool that was never used", status=204)
    def delete(self, request: Request, name: str) -> Response:
        pool = self.get_pool(name)
        self.require("administer")
        services.delete_pool(actor=self.actor, pool=pool)
        return no_content()


class PoolAction(PoolView):
    service: ClassVar[Callable[..., NodePool]]

    def perform(self, request: Request, name: str) -> Response:
        pool = self.get_pool(name)
        self.require("administer")
        parse_body(request, NoBody)
        type(self).service(actor=self.actor, pool=pool)
        return self.pool_response(name)


class PausePool(PoolAction):
    service = staticmethod(services.pause_pool)

    @operation("Pause scaling of a node pool", response=NodePoolResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        return self.perform(request, name)


class ResumePool(PoolAction):
    service = staticmethod(services.resume_pool)

    @operation("Resume a paused or drained node pool", response=NodePoolResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        return self.perform(request, name)


class RetryPool(PoolAction):
    service = staticmethod(services.retry_pool)

    @operation("Retry provisioning after failed boots", response=NodePoolResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        return self.perform(request, name)


class DrainPool(PoolView):
    @operation("Drain all nodes of a pool", body=ReasonBody, response=NodePoolResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        pool = self.get_pool(name)
        self.require("administer")
        services.drain_pool(actor=self.actor, pool=pool, reason=parse_body(request, ReasonBody).reason)
        return self.pool_response(name)


class PoolHistory(PoolView):
    @operation("List scaling events, newest first", query=HistoryQuery, page=ScalingEventResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, HistoryQuery)
        check_names(unknown_value_problem("kind", query.kind, ScalingKind.values))
        rows = filter_by(selectors.scaling_events(self.get_pool(name)), kind=query.kind)
        is_admin = self.is_allowed("administer")
        return Response(page(rows, query, LATEST, lambda events: _event_responses(events, is_admin=is_admin)))


def _event_responses(rows: Sequence[ScalingEvent], *, is_admin: bool) -> list[Any]:
    return [
        ScalingEventResponse.from_row(
            row,
            node=row.node.name if row.node else None,
            reason=selectors.visible_reason(row, is_admin=is_admin),
            data=row.data if is_admin else {},
        )
        for row in rows
    ]
