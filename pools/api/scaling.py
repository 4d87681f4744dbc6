"""REST endpoint that scales a pool and previews the nodes to drain."""

from typing import Annotated

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.requests import Body, Query, etag, no_query, parse_body, parse_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from pools import services
from pools.api.draining import DrainingNodeAnswer, ScaledAnswer, draining_answers, with_draining
from pools.api.pool_shapes import INT_MAX
from pools.api.pools import PoolView
from pools.scale_down import blocked_reasons, draining


class Scale(Body):
    nodes: Annotated[int, Field(ge=0, le=INT_MAX, description="Desired number of nodes.")]


class ScaleQuery(Query):
    nodes: (
        Annotated[int, Field(ge=0, le=INT_MAX, description="Desired number of nodes to preview.")] | None
    ) = None


class ScaleAnswer(Answer):
    nodes_desired: int
    nodes: int = Field(description="Number of nodes that was previewed.")
    draining_count: int
    draining: list[DrainingNodeAnswer] = Field(description="First 500 nodes to drain, in order.")
    blocked: list[str] = Field(description="Actions that a disruption budget blocks now.")


class ScalePool(PoolView):
    @operation("Preview the nodes to drain at a size", query=ScaleQuery, answer=ScaleAnswer)
    def get(self, request: Request, name: str) -> Response:
        query, pool, now = parse_query(request, ScaleQuery), self.get_pool(name), timezone.now()
        nodes = pool.nodes_desired if query.nodes is None else query.nodes
        if query.nodes is not None:
            services.check_nodes_desired(pool, nodes, "nodes")
        going = draining(pool, nodes, now)
        return Response(
            ScaleAnswer(
                nodes_desired=pool.nodes_desired,
                nodes=nodes,
                draining_count=len(going),
                draining=draining_answers(going, running_it=self.allowed("administer")),
                blocked=list(blocked_reasons(pool, now)),
            )
        )

    @operation("Set the desired number of nodes", body=Scale, answer=ScaledAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        no_query(request)
        pool = self.get_pool(name)
        self.require("administer")
        nodes = parse_body(request, Scale).nodes
        services.set_nodes_desired(acting=self.acting, pool=pool, nodes_desired=nodes)
        pool = self.get_pool(name)
        return Response(with_draining(pool, timezone.now()), headers={"ETag": etag(pool.version)})
