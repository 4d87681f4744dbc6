"""REST endpoint that scales a pool, or previews which nodes would be drained."""

from typing import Annotated

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.requests import Body, Query, etag, parse_body, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from pools import services
from pools.api.pools import PoolView
from pools.api.schemas.draining import (
    DrainingNodeResponse,
    ScaledPoolResponse,
    draining_node_responses,
    scaled_pool_response,
)
from pools.api.schemas.pools import INT_MAX
from pools.scale_down import list_blocked_actions, list_nodes_to_drain


class ScaleNodesBody(Body):
    nodes: Annotated[int, Field(ge=0, le=INT_MAX, description="Desired number of nodes.")]


class ScaleQuery(Query):
    nodes: (
        Annotated[int, Field(ge=0, le=INT_MAX, description="Desired number of nodes to preview.")] | None
    ) = None


class ScalePreviewResponse(ResponseModel):
    nodes_desired: int
    nodes: int = Field(description="Previewed number of nodes.")
    draining_count: int
    draining: list[DrainingNodeResponse] = Field(description="First 500 nodes to drain, in order.")
    blocked: list[str] = Field(description="Actions that a disruption budget blocks now.")


class ScalePool(PoolView):
    @operation(
        "Preview the nodes that a smaller pool would drain", query=ScaleQuery, response=ScalePreviewResponse
    )
    def get(self, request: Request, name: str) -> Response:
        query, pool, now = parse_query(request, ScaleQuery), self.get_pool(name), timezone.now()
        nodes = pool.nodes_desired if query.nodes is None else query.nodes
        if query.nodes is not None:
            services.check_nodes_desired(pool, nodes, "nodes")
        nodes_to_drain = list_nodes_to_drain(pool, nodes, now)
        return Response(
            ScalePreviewResponse(
                nodes_desired=pool.nodes_desired,
                nodes=nodes,
                draining_count=len(nodes_to_drain),
                draining=draining_node_responses(nodes_to_drain, is_admin=self.is_allowed("administer")),
                blocked=list(list_blocked_actions(pool, now)),
            )
        )

    @operation("Set the desired number of nodes", body=ScaleNodesBody, response=ScaledPoolResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        pool = self.get_pool(name)
        self.require("administer")
        nodes = parse_body(request, ScaleNodesBody).nodes
        services.set_nodes_desired(actor=self.actor, pool=pool, nodes_desired=nodes)
        pool = self.get_pool(name)
        return Response(scaled_pool_response(pool, timezone.now()), headers={"ETag": etag(pool.version)})
