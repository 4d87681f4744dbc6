"""REST resource that scales a pool and previews which nodes leave."""

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
from pools.api.draining import LeavingAnswer, ScaledAnswer, leaving_answers, with_leaving
from pools.api.pool_shapes import LARGEST
from pools.api.pools import PoolDoor
from pools.scale_down import held_back, leaving


class Scale(Body):
    nodes: Annotated[int, Field(ge=0, le=LARGEST, description="So many nodes are wanted.")]


class ScaleQuery(Query):
    nodes: Annotated[int, Field(ge=0, le=LARGEST, description="If so many were wanted.")] | None = None


class ScaleAnswer(Answer):
    wanted: int
    nodes: int = Field(description="The number that was asked about.")
    leaving_count: int
    leaving: list[LeavingAnswer] = Field(description="The first 500, in the order in which they would go.")
    held_back: list[str] = Field(description="What a budget forbids the pool to do now.")


class ScalePool(PoolDoor):
    @operation("Which nodes would go", query=ScaleQuery, answer=ScaleAnswer)
    def get(self, request: Request, name: str) -> Response:
        asked, pool, now = parse_query(request, ScaleQuery), self.found(name), timezone.now()
        nodes = pool.wanted if asked.nodes is None else asked.nodes
        if asked.nodes is not None:
            services.check_wanted(pool, nodes, "nodes")
        going = leaving(pool, nodes, now)
        return Response(
            ScaleAnswer(
                wanted=pool.wanted,
                nodes=nodes,
                leaving_count=len(going),
                leaving=leaving_answers(going, running_it=self.allowed("administer")),
                held_back=list(held_back(pool, now)),
            )
        )

    @operation("Want another number of nodes", body=Scale, answer=ScaledAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        no_query(request)
        pool = self.found(name)
        self.require("administer")
        wanted = parse_body(request, Scale).nodes
        services.set_wanted(acting=self.acting, pool=pool, wanted=wanted)
        pool = self.found(name)
        return Response(with_leaving(pool, timezone.now()), headers={"ETag": etag(pool.version)})
