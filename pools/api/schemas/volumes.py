"""REST models for pool volumes."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from berth.server.api.responses import ResponseModel
from pools.engine.s3_sources import ACCESSES, MAX_GIB, MAX_GIB_MAX
from pools.engine.volumes import LABELS_MAX, PROJECTS_MAX, VOLUMES_MAX, read_volumes

# `normalize_volumes` validates this value and names the invalid field, such as volumes[0].source.
VolumeValues = Annotated[
    Any,
    Field(
        description="Directories that workloads may mount by name. `source` is a path on the nodes that have "
        "the labels in `nodes` (default: all nodes), or on Kubernetes also nfs://SERVER/PATH. `access` is "
        "read_only (default) or read_write. `projects` lists the projects that may use the volume (default: "
        "all projects). Except on Kubernetes, `source` may also be s3://BUCKET/PREFIX: nodes fetch the "
        "objects before a pod starts, and Berth stores what the pod has changed after it has ended. "
        "`endpoint` is then the URL of an object store other than AWS, `region` its region, `secret` one of "
        "the pool's secrets of the kind s3_key (default: the server's own identity), and `max_gib` the "
        f"maximum size of all objects (default: {MAX_GIB})."
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
                    "endpoint": {"type": "string"},
                    "region": {"type": "string"},
                    "secret": {"type": "string"},
                    "max_gib": {"type": "integer", "minimum": 1, "maximum": MAX_GIB_MAX},
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
    endpoint: str | None = Field(description="URL of the object store. Null for AWS and for directories.")
    region: str | None
    secret: str | None = Field(description="Secret of the pool with the credentials for S3.")
    max_gib: int | None = Field(description="Maximum size of all objects. Null for directories.")


def volume_responses(stored: Iterable[Mapping[str, Any]]) -> list[VolumeResponse]:
    return [
        VolumeResponse.from_row(
            volume,
            nodes=dict(volume.nodes),
            projects=list(volume.projects),
            endpoint=volume.endpoint or None,
            region=volume.region or None,
            secret=volume.secret or None,
            max_gib=volume.max_gib if volume.is_synced else None,
        )
        for volume in read_volumes(stored)
    ]
