"""REST endpoint for a pool's fragmentation and the gangs that would fit."""

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.responses import ResponseModel, from_milli
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from scheduler.reports.fragmentation import measure_fragmentation


class FragmentationLevelResponse(ResponseModel):
    gpus: int
    nodes: int = Field(description="Nodes with exactly this many free GPUs.")
    replicas: int = Field(description="Replicas of this size that could start together.")


class FragmentationResponse(ResponseModel):
    """Entirely free GPUs on ready nodes, excluding reserved GPUs. CPU and memory are not considered."""

    nodes: int
    free_gpus: int
    free_in_parts: float | None = Field(description="Free GPUs on partially allocated devices.")
    levels: list[FragmentationLevelResponse]


class Fragmentation(PoolView):
    @operation("Get the fragmentation of a pool's free GPUs", response=FragmentationResponse)
    def get(self, request: Request, name: str) -> Response:
        fragmentation = measure_fragmentation(self.get_pool(name))
        return Response(
            FragmentationResponse.from_row(
                fragmentation,
                free_gpus=fragmentation.free_devices,
                free_in_parts=from_milli(fragmentation.partial_milli),
            )
        )
