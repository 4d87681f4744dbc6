"""Validate a Kubernetes pool's settings."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from pools.kubernetes.api_server.credentials import BYTES_MAX
from pools.providers import formats
from pools.providers.validation import parse_settings

Kubeconfig = Annotated[
    str | None,
    Field(
        max_length=BYTES_MAX,
        repr=False,
        description="Credentials for the cluster of a Kubernetes pool: a kubeconfig that does not refer to "
        "files or programs. Stored encrypted and never shown.",
    ),
]
THROUGH_API_SERVER = "api_server"
Path = Annotated[str, formats.MOUNT_PATH]
Host = Annotated[str, formats.NFS_SERVER]
Name = Annotated[str, formats.KUBERNETES_NAME]
Value = Annotated[str, formats.KUBERNETES_VALUE]


class _SettingsModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PoolToleration(_SettingsModel):
    """Taint that the pool's pods tolerate. If the value or the effect is missing, any value or effect
    matches.
    """

    key: Name
    value: Value | None = None
    effect: Literal["NoSchedule", "NoExecute"] | None = None

    def manifest(self) -> dict[str, str]:
        return {
            "key": self.key,
            **({"operator": "Exists"} if self.value is None else {"operator": "Equal", "value": self.value}),
            **({} if self.effect is None else {"effect": self.effect}),
        }


class NfsExport(_SettingsModel):
    server: Host
    path: Path


class Workspaces(_SettingsModel):
    """Storage for workspaces that is mounted on all nodes. Each workload has its own directory."""

    nfs: NfsExport | None = None
    host_path: Path | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> "Workspaces":
        if (self.nfs is None) == (self.host_path is None):
            raise PydanticCustomError(
                "one_kind", "requires exactly one kind of storage", {"allowed": "nfs or host_path"}
            )
        return self


class KubernetesSettings(_SettingsModel):
    """Settings of a Kubernetes pool.

    Its credentials are a kubeconfig or Berth's own service account. `node_selector` selects nodes by label,
    and `tolerations` permits some of their taints. If `workspaces` is not set, a workspace is lost when its
    pod ends.
    """

    in_cluster: bool = Field(
        default=False,
        title="In this cluster",
        description="Berth runs in the cluster and uses its own service account instead of a kubeconfig.",
    )
    context: Annotated[str, StringConstraints(max_length=253)] = Field(
        default="", description="Context of the kubeconfig. Defaults to its current context."
    )
    node_selector: dict[Name, Value] = Field(
        default_factory=dict,
        description="Labels of the nodes that the pool uses. Defaults to all nodes.",
        examples=["gpu: a100"],
    )
    tolerations: Annotated[tuple[PoolToleration, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Node taints that the pool tolerates.", examples=["- key: gpu"]
    )
    gpu_resource: Name = Field(default="nvidia.com/gpu", title="GPU resource")
    gpu_model_label: Name = Field(default="nvidia.com/gpu.product", title="Node label of the GPU model")
    gpu_memory_label: Name = Field(default="nvidia.com/gpu.memory", title="Node label of the GPU memory")
    workspaces: Workspaces | None = Field(
        default=None,
        description="Storage that all nodes mount. Without it, a pod's workspace is lost when the pod ends.",
        examples=["nfs: {server: files.example.org, path: /berth}"],
    )
    ports: Literal["direct", "api_server"] = Field(
        default="direct",
        title="Connections to ports",
        description="How Berth connects to ports of interactive workloads: `direct` to the pods' addresses, "
        "or through the `api_server` if it cannot reach the pods directly.",
    )


def kubernetes_settings(value: Any) -> KubernetesSettings:
    """Parse a pool's settings. Raises Invalid with the path of each problem within `provider_settings`."""
    return parse_settings(KubernetesSettings, value)
