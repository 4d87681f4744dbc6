"""REST models for volumes of pools."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from berth.server.api.responses import ResponseModel
from pools.engine.volumes import ACCESSES, LABELS_MAX, PROJECTS_MAX, VOLUMES_MAX, read_volumes

# `normalize_volumes` validates this value and reports the invalid field, such as volumes[0].source.
VolumeValues = Annotated[
    Any,
    Field(
        description="Directories of the pool's nodes that workloads may mount by name. `source` is a path on "
        "the nodes that have the labels in `nodes` (default: all nodes), or on Kubernetes also "
        "nfs://SERVER/PATH. `access` is read_only (default) or read_write. `projects` lists the projects "
        "that may use the volume (default: all projects)."
    ),
    WithJsonSchema(
        {
            "type": "array",
            "maxItems": VOLUMES_MAX,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "source": {"type": "string"},
                    "access": {"enum": list(ACCESSES)},
                    "nodes": {
                        "type": "object", "maxProperties": LABELS_MAX,
                        "additionalProperties": {"type": "string"},
                    },
                    "projects": {"type": "array", "maxItems": PROJECTS_MAX, "items": {"type": "string"}},
                },
                "required": ["name", "source"],
                "additionalProperties": False,
            },
        }
    ),
]  # fmt: skip


class VolumeResponse(ResponseModel):
    name: str
    source: str
    access: Literal["read_only", "read_write"]
    nodes: dict[str, str] = Field(description="Labels of the nodes that have the volume; empty: all nodes.")
    projects: list[str] = Field(description="Projects that may use the volume; empty: all projects.")


def volume_responses(stored: Iterable[Mapping[str, Any]]) -> list[VolumeResponse]:
    return [
        VolumeResponse.from_row(volume, nodes=dict(volume.nodes), projects=list(volume.projects))
        for volume in read_volumes(stored)
    ]
