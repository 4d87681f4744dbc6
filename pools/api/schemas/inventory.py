"""REST models for the machine inventory that agents report."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from berth.core.spec.values.texts import Text
from berth.server.api.requests import Body
from berth.server.api.responses import ResponseModel
from pools.joining.package import agent_version

Label = Annotated[Text, Field(max_length=100)]
Mebibytes = Annotated[int, Field(ge=0, le=2**53)]


class GpuBody(Body):
    model: Label = ""
    memory_mib: Mebibytes = 0


class InventoryBody(Body):
    """Properties of a machine that do not affect scheduling."""

    agent_version: Label = ""
    python: Label = ""
    os: Label = ""
    kernel: Label = ""
    architecture: Label = ""
    cpu_model: Label = ""
    disk_mib: Mebibytes = 0
    disk_free_mib: Mebibytes = 0
    gpu_driver: Label = ""
    upgrade_error: Annotated[Text, Field(max_length=1000)] = ""
    gpus: Annotated[tuple[GpuBody, ...], Field(max_length=1024, strict=False)] = ()


class GpuResponse(ResponseModel):
    model: str
    memory_mib: int


class InventoryResponse(ResponseModel):
    agent_version: str
    agent_outdated: bool = Field(description="Whether the server has a different version of the agent.")
    upgrade_error: str = Field(description="Reason the last upgrade of the agent failed.")
    python: str
    os: str
    kernel: str
    architecture: str
    cpu_model: str
    disk_mib: int = Field(description="Size of the file system with the agent's files.")
    disk_free_mib: int
    gpu_driver: str
    gpus: list[GpuResponse] = Field(description="GPUs in the order of the devices.")


def inventory_response(stored: Mapping[str, Any]) -> InventoryResponse | None:
    """Return the response for the inventory that an agent last reported, or None if there is none."""
    if not stored:
        return None
    values = InventoryBody(**stored).model_dump(mode="json")
    return InventoryResponse(**values, agent_outdated=values["agent_version"] != agent_version())
