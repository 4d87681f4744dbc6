"""REST models for node pool settings and for responses about pools."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from django.utils import timezone
from pydantic import Field, WithJsonSchema, WrapValidator

from berth.core.spec.roles import Labels
from berth.core.spec.values.quantities import Cores, Moment, to_thousandths
from berth.core.spec.values.texts import Text
from berth.server.api.requests import Body
from berth.server.api.responses import Amounts, ResponseModel, from_milli
from pools.api.schemas.default_limits import DefaultLimitsResponse, DefaultLimitsValues
from pools.api.schemas.idle_rules import IdleRuleResponse, IdleRuleValues
from pools.api.schemas.image_policies import ImagePolicyResponse, ImagePolicyValues
from pools.api.schemas.volumes import VolumeResponse, VolumeValues, volume_responses
from pools.costs import current_price
from pools.engine.budgets import DisruptionReason
from pools.engine.node_spec import FIELDS
from pools.engine.pod_limits import DefaultLimits
from pools.kubernetes.settings import Kubeconfig
from pools.models import NodePool
from pools.providers.slurm.rest.token import SlurmToken
from pools.providers.ssh.settings import SshKeys
from pools.selectors import PoolState, pool_state

INT_MAX = 2**31 - 1
Count = Annotated[int, Field(ge=0, le=INT_MAX)]
Positive = Annotated[int, Field(ge=1, le=INT_MAX)]
ProviderChoice = Literal["local", "static", "fake", "aws", "kubernetes", "ssh", "slurm"]
RuntimeChoice = Literal["local", "fake", "ray", "kubernetes"]
# Accept the value `fake`, which the schema does not list. The service checks whether the pool may use it.
AllowFake = WrapValidator(lambda value, validate: value if value == "fake" else validate(value))
OfferedProvider = Annotated[Literal["local", "static", "aws", "kubernetes", "ssh", "slurm"], AllowFake]
OfferedRuntime = Annotated[Literal["local", "ray", "kubernetes"], AllowFake]
PlacementChoice = Literal["binpack", "spread", "fragmentation", "auto"]
ConsolidationChoice = Literal["never", "when_empty", "when_underutilized"]
FairShareChoice = Literal["point_in_time", "time_based"]
Price = Annotated[float, Field(ge=0, le=999_999)]
# The node spec rules validate this value and name the invalid field, such as nodes.max.
Nodes = Annotated[
    Any,
    Field(
        description="Short form of the three fields below: 4, [2, 16] or {min: 8, desired: 4}. A pool with a "
        "max is elastic."
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2},
                {
                    "type": "object",
                    "properties": {name: {"type": "integer", "minimum": 0} for name in FIELDS},
                    "required": ["min"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
# The plugin and image rules validate this value and name the invalid field, such as plugins[1].parameters.
Plugins = Annotated[
    Any,
    Field(
        description="Plugins in order: names, or entries with name and parameters. Secret parameters are "
        "stored but never shown. Omit a secret to keep its value, or set it to null to delete it. "
        "`GET plugins` lists the available plugins."
    ),
    WithJsonSchema(
        {
            "type": "array",
            "maxItems": 32,
            "items": {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "parameters": {"type": "object"},
                            "secrets_set": {"type": "object", "readOnly": True},
                        },
                        "required": ["name"],
                        "additionalProperties": False,
                    },
                ]
            },
        }
    ),
]
_TEXT_LIST = {"type": "array", "items": {"type": "string"}, "maxItems": 500}
EnvironmentValues = Annotated[
    Any,
    Field(description="Environment of each node before plugins extend it; must not contain secrets."),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "python": {
                    "type": "string",
                    "description": "For example 3.12. Defaults to the machine's Python.",
                },
                "pip": _TEXT_LIST,
                "indexes": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"url": {"type": "string"}, "packages": _TEXT_LIST},
                        "required": ["url"],
                        "additionalProperties": False,
                    },
                },
                "apt": _TEXT_LIST,
                "env": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "additionalProperties": False,
        }
    ),
]
# The budget rules validate this value and name the invalid field, such as disruption_budgets[0].schedule.
Budgets = Annotated[
    Any,
    Field(
        description="Maximum number of nodes that may be disrupted at the same time when the pool removes "
        "nodes because they are empty or underutilized (default: both). With a schedule (five cron fields), "
        "a budget applies for its duration (in seconds, or for example 8h) from each scheduled time in its "
        "zone. The strictest budget applies. Manual drains are never blocked, but count towards the limit."
    ),
    WithJsonSchema(
        {
            "type": "array",
            "maxItems": 50,
            "items": {
                "type": "object",
                "properties": {
                    "nodes": {
                        "anyOf": [
                            {"type": "integer", "minimum": 0},
                            {"type": "string", "pattern": "^[0-9]{1,9}$|^([0-9]{1,2}|100)%$"},
                        ]
                    },
                    "reasons": {"type": "array", "items": {"enum": list(DisruptionReason)}},
                    "schedule": {"type": "string", "description": "For example 0 9 * * mon-fri."},
                    "duration": {"anyOf": [{"type": "integer", "minimum": 60}, {"type": "string"}]},
                    "zone": {"type": "string", "description": "For example Europe/Berlin. Defaults to UTC."},
                },
                "required": ["nodes"],
                "additionalProperties": False,
            },
        }
    ),
]
IN_THOUSANDTHS = {"cpu": "cpu_milli", "cpu_load_limit": "cpu_load_limit"}


class TaintValues(Body):
    key: Annotated[Text, Field(min_length=1, max_length=253)]
    value: Annotated[Text, Field(max_length=253)] = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class PoolValues(Body):
    """Settings of a pool. Durations are in seconds, and `cpu` is in cores. Omitted fields are unchanged."""

    provider: OfferedProvider = "local"
    runtime: OfferedRuntime = Field("local", description="Default: the runtime that fits the provider.")
    provider_settings: dict[str, Any] = Field(
        default={}, description="Provider settings such as the region; must not contain secrets."
    )
    kubeconfig: Kubeconfig = None
    slurm_token: SlurmToken = None
    ssh_keys: SshKeys = {}
    nodes: Nodes = 1
    nodes_min: Count = 1
    ready_threshold: Count | None = None
    nodes_max: Count | None = None
    expires_at: Moment | None = None
    autoscale_cooldown: Count = 30
    autoscale_idle_timeout: Count = 60
    reconcile_tick: Positive = 15
    drain_timeout: Count = 600
    boot_timeout: Count = 900
    boot_failure_limit: Annotated[
        Count, Field(description="Consecutive failed boots after which provisioning stops; 0: unlimited.")
    ] = 5
    node_consolidation: ConsolidationChoice = "never"
    node_consolidation_after: Count = 300
    disruption_budgets: Budgets = ()
    gpus_per_node: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_model: Annotated[Text, Field(max_length=64)] = ""
    gpu_memory_mib: Count = 0
    cpu: Cores = 1
    memory_mib: Positive = 1024
    max_pods: Positive = 110
    default_limits: DefaultLimitsValues = {}
    workspace_limit_mib: Positive | None = None
    labels: Labels = {}
    taints: Annotated[tuple[TaintValues, ...], Field(max_length=64, strict=False)] = ()
    price_per_gpu_hour: Price | None = None
    plugins: Plugins = ()
    environment: EnvironmentValues = {}
    image_policy: ImagePolicyValues = {}
    idle_rule: IdleRuleValues = None
    volumes: VolumeValues = ()
    node_placement: PlacementChoice = "auto"
    device_placement: PlacementChoice = "auto"
    reclaim_min_runtime: Count = 0
    preempt_min_runtime: Count = 0
    preemption_delay: Count = 0
    stale_gang_grace: Annotated[int, Field(ge=-1, le=INT_MAX)] = 60
    consolidation_enabled: bool = True
    consolidation_max_moves: Count | None = None
    consolidation_max_trials: Count | None = None
    fairshare_mode: FairShareChoice = "point_in_time"
    half_life: Positive | None = None
    window: Positive | None = None
    tumbling_window: bool = False
    k: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    count_all: bool = False
    over_quota_weights: bool = True
    topology: Annotated[tuple[Text, ...], Field(max_length=16, strict=False)] = ()
    reservation_after: Count | None = 600
    cpu_load_limit: Annotated[
        float, Field(ge=0, le=1000, description="Share of a node's CPU to allocate; 0.8 is 80%.")
    ] = 1.0

    def column_values(self) -> dict[str, Any]:
        """Return the values that were set explicitly, keyed by model column."""
        return {
            IN_THOUSANDTHS.get(name, name): _to_stored_value(name, value)
            for name, value in self.explicit_values().items()
        }


class CreatePoolBody(PoolValues):
    name: Text


class PluginResponse(ResponseModel):
    name: str
    parameters: dict[str, Any]
    secrets_set: dict[str, datetime] = Field(
        description="Secrets that are set, each with the time at which it was set."
    )


LevelChoice = Literal["users", "namespaces", "none"]


class NodePoolResponse(ResponseModel):
    name: str
    version: int
    provider: ProviderChoice
    runtime: RuntimeChoice
    provider_settings: dict[str, Any] | None = Field(description="Null unless you are a platform admin.")
    nodes_min: int
    ready_threshold: int | None
    nodes_max: int | None
    nodes_desired: int
    nodes_ready: int
    nodes_pending: int
    nodes_draining: int
    capacity: Amounts = Field(description="Capacity of the nodes that currently accept pods.")
    free: Amounts
    state: PoolState = Field(description="`failing`: see `last_error` (platform admins only).")
    isolation: LevelChoice | None = Field(
        description="Weakest isolation of the pool's nodes; null until a node has reported it."
    )
    paused: bool
    operational: bool
    expires_at: datetime | None
    last_error: str | None = Field(description="Last provider error; null unless you are a platform admin.")
    autoscale_cooldown: int
    autoscale_idle_timeout: int
    reconcile_tick: int
    drain_timeout: int
    boot_timeout: int
    boot_failure_limit: int
    boot_failures: int = Field(description="Consecutive launch requests whose nodes never became ready.")
    boot_retry_at: datetime | None = Field(
        description="Earliest time of the next launch request; null if there is no delay."
    )
    provisioning_stopped: bool = Field(description="If true, no nodes are requested until POST .../retry.")
    node_consolidation: ConsolidationChoice = Field(
        description="Nodes that are released in addition to those that the autoscaler removes: none, "
        "empty nodes, or also nodes whose pods fit on other nodes."
    )
    node_consolidation_after: int
    disruption_budgets: list[dict[str, Any]]
    last_scaled_at: datetime | None
    gpus_per_node: int
    gpu_model: str
    gpu_memory_mib: int
    cpu: float
    memory_mib: int
    max_pods: int
    default_limits: DefaultLimitsResponse
    workspace_limit_mib: int | None = Field(
        description="Maximum disk space of a workspace and its pods; null for unlimited."
    )
    labels: dict[str, Any]
    taints: list[dict[str, Any]]
    price_per_gpu_hour: float | None
    plugins: list[PluginResponse]
    environment: dict[str, Any] = Field(
        description="Environment as declared; GET .../environment returns the resulting image."
    )
    environment_digest: str | None = Field(
        description="Digest of the environment of new nodes; null if there is none."
    )
    image_policy: ImagePolicyResponse
    idle_rule: IdleRuleResponse | None
    volumes: list[VolumeResponse] | None = Field(
        description="Null unless you are a platform admin; `GET projects/{name}` lists a project's volumes."
    )
    current_price: float | None = Field(
        description="Price per GPU-hour in effect: the pool's own or, if unset, the list price."
    )
    node_placement: PlacementChoice
    device_placement: PlacementChoice
    reclaim_min_runtime: int
    preempt_min_runtime: int
    preemption_delay: int
    stale_gang_grace: int
    consolidation_enabled: bool
    consolidation_max_moves: int | None
    consolidation_max_trials: int | None
    fairshare_mode: FairShareChoice
    half_life: int | None
    window: int | None
    tumbling_window: bool
    k: float
    count_all: bool
    over_quota_weights: bool
    topology: list[str]
    reservation_after: int | None
    cpu_load_limit: float
    created_at: datetime
    updated_at: datetime


def to_pool_response(
    pool: NodePool, capacity_by_pool: Mapping[int, tuple[Amounts, Amounts]], *, is_admin: bool
) -> NodePoolResponse:
    """Return the response for a pool. `capacity_by_pool` maps pool IDs to total and free capacity."""
    capacity, free = capacity_by_pool[pool.pk]
    return NodePoolResponse.from_row(
        pool,
        capacity=capacity,
        free=free,
        operational=pool.operational_since is not None,
        state=pool_state(pool, timezone.now()),
        default_limits=DefaultLimits.model_validate(pool.default_limits).model_dump(),
        cpu=from_milli(pool.cpu_milli) or 0,
        cpu_load_limit=from_milli(pool.cpu_load_limit) or 0,
        last_error=pool.last_error if is_admin else None,
        provider_settings=pool.provider_settings if is_admin else None,
        environment_digest=pool.built_environment_id,
        image_policy=ImagePolicyResponse.from_policy(pool.image_policy),
        idle_rule=IdleRuleResponse.from_rule(pool.idle_rule),
        volumes=volume_responses(pool.volumes) if is_admin else None,
        current_price=None if (price := current_price(pool)) is None else float(price),
    )


def _to_stored_value(name: str, value: Any) -> Any:
    if name in IN_THOUSANDTHS:
        return to_thousandths(value)
    if name == "taints":
        return [taint.model_dump() for taint in value]
    if name == "topology":
        return list(value)
    return Decimal(str(value)) if name == "price_per_gpu_hour" and value is not None else value
