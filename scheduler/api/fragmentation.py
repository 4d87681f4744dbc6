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
    """Whole devices of nodes that take work, neither held nor promised; CPU or memory may allow less."""

    nodes: int
    free_gpus: int
    free_in_parts: float | None = Field(description="Free GPUs on partially allocated devices.")
    levels: list[LevelAnswer]


class Fragmentation(PoolView):
    @operation("In how many pieces its free GPUs lie", answer=FragmentationAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        told = fragmentation_of(self.get_pool(name))
        levels = [
            LevelAnswer(gpus=level.gpus, nodes=level.nodes, replicas=level.replicas) for level in told.levels
        ]
        return Response(
            FragmentationAnswer(
                nodes=told.nodes, free_gpus=told.whole, free_in_parts=from_milli(told.parts), levels=levels
            )
        )
