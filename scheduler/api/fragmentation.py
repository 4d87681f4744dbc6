"""REST endpoint of a pool's fragmentation, and of the gangs that would fit."""

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.requests import no_query
from berth.server.api.responses import Answer, from_milli
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from scheduler.reports.fragmentation import fragmentation_of


class LevelAnswer(Answer):
    gpus: int
    nodes: int = Field(description="That have exactly so many free.")
    replicas: int = Field(description="That want so many each would start together.")


class FragmentationAnswer(Answer):
    """Free whole devices of ready nodes, without reserved ones; CPU or memory may allow less."""

    nodes: int
    free_gpus: int
    free_in_parts: float | None = Field(description="Free GPUs on partially allocated devices.")
    levels: list[LevelAnswer]


class Fragmentation(PoolView):
    @operation("Fragmentation of a pool's free GPUs", answer=FragmentationAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        fragmentation = fragmentation_of(self.get_pool(name))
        levels = [
            LevelAnswer(gpus=level.gpus, nodes=level.nodes, replicas=level.replicas)
            for level in fragmentation.levels
        ]
        return Response(
            FragmentationAnswer(
                nodes=fragmentation.nodes,
                free_gpus=fragmentation.whole,
                free_in_parts=from_milli(fragmentation.parts),
                levels=levels,
            )
        )
