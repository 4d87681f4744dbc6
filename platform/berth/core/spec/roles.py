"""Workload roles: their replicas and the resources of each replica."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from berth.core.spec.values.quantities import Cores, Duration, Gpus, Mebibytes
from berth.core.spec.values.texts import (
    Directory,
    FileName,
    LabelKey,
    LabelValue,
    Name,
    Script,
    Text,
    Variable,
)

REPLICAS_MAX = 100_000
SECONDS_MAX = 10 * 366 * 86_400

Seconds = Annotated[Duration, Field(ge=0, le=SECONDS_MAX)]
Count = Annotated[int, Field(ge=0, le=REPLICAS_MAX)]
Environment = Annotated[dict[Variable, Script], Field(max_length=1024)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]
# A strict tuple would reject JSON and YAML lists. The items are still validated strictly.
Arguments = Annotated[tuple[Script, ...], Field(min_length=1, max_length=1024, strict=False)]
ONE_LINE, WORD_LIST = "<line>", "<words>"


def _command_tag(value: object) -> str:
    return ONE_LINE if isinstance(value, str) else WORD_LIST


Command = Annotated[
    Annotated[Script, Field(min_length=1), Tag(ONE_LINE)] | Annotated[Arguments, Tag(WORD_LIST)],
    Discriminator(_command_tag),
]


class Document(BaseModel):
    """Base model for parts of a document: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Topology(Document):
    """Node labels whose values must (`required`) or should (`preferred`) be the same for all replicas."""

    required: LabelKey | None = None
    preferred: LabelKey | None = None


class Limit(Document):
    """Hard upper bounds on a replica's resources.

    If set, the limit rather than the request counts against the node's capacity.
    """

    cpu: Cores | None = None
    memory_mib: Mebibytes | None = None


class Toleration(Document):
    """Tolerated taint. An empty key with the operator `Exists` tolerates every taint."""

    key: Annotated[Text, Field(max_length=253)] = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class ScaleWith(Document):
    """Scaling rule: this role has `ratio` replicas per replica of `role`."""

    role: Name
    ratio: Annotated[float, Field(gt=0, le=1000, strict=True)] = 1.0


class SecretUse(Document):
    """Secret that pods receive as an environment variable (`env`) or as a file in BERTH_SECRETS_DIR.

    It belongs to the project or pool, or to the submitter if `personal` is true.
    """

    name: Name
    personal: bool = False
    env: Variable | None = None
    file: FileName | None = None


SecretUses = Annotated[tuple[SecretUse, ...], Field(max_length=64, strict=False)]


class RoleSpec(Document):
    """Set of identical replicas, at least `min` and at most `max`.

    `idle` replicas run no command, but occupy their resources until the other roles have completed.
    """

    name: Name = "worker"
    min: Count | None = None
    max: Annotated[int, Field(ge=1, le=REPLICAS_MAX)] | None = None
    replicas: Annotated[int, Field(ge=1, le=REPLICAS_MAX)] | None = None
    gpu: Gpus = 0
    gpu_devices: Annotated[int, Field(ge=1, le=1024)] | None = None
    gpu_memory_mib: Annotated[Mebibytes, Field(gt=0)] | None = None
    cpu: Cores = 0
    memory_mib: Mebibytes = 0
    limit: Limit = Limit()
    node_selector: Labels = Field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64, strict=False)] = ()
    gpu_models: Annotated[tuple[LabelKey, ...], Field(max_length=64, strict=False)] = ()
    spread_per_node: Annotated[int, Field(ge=1, le=REPLICAS_MAX)] | None = None
    topology: Topology | None = None
    scale_with: ScaleWith | None = None
    command: Command | None = None
    idle: bool = False
    workspace: Directory | None = None
    env: Environment = Field(default_factory=dict)
    secrets: SecretUses = ()

    @property
    def minimum(self) -> int:
        if self.replicas is not None:
            return self.replicas
        return 1 if self.min is None else self.min

    @property
    def maximum(self) -> int:
        if self.replicas is not None:
            return self.replicas
        return self.max if self.max is not None else self.minimum
