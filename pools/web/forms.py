"""Forms for node pools."""

from functools import partial
from typing import Any

from django import forms

from berth.core.amounts import MILLI
from berth.core.spec.quantities import CPU_LIMIT_MIN, MEMORY_LIMIT_MIN_MIB
from berth.server.web.forms import Form
from pools.engine.image_policy import read_policy
from pools.engine.pod_limits import DefaultLimits
from pools.models import NodePool
from pools.services.machines import MAX_MACHINES
from pools.services.offered import offered_choices
from pools.web import environment_fields

# Form fields of the default limits, and their keys.
LIMIT_FIELDS = {
    "memory_from_request": "memory_from_request",
    "default_memory_mib": "memory_mib",
    "cpu_from_request": "cpu_from_request",
    "default_cpu": "cpu",
}


class JsonField(forms.JSONField):
    """JSON field that shows empty values as an empty string instead of null."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "mono"})

    def prepare_value(self, value: Any) -> Any:
        return super().prepare_value(value) if value else ""


class PoolForm(Form):
    name = forms.SlugField(label="Name", max_length=40, help_text="Lowercase letters, digits and dashes.")
    provider = forms.ChoiceField(
        label="Provider", choices=partial(offered_choices, "provider"), help_text="Source of the nodes."
    )
    runtime = forms.ChoiceField(
        label="Runtime", choices=partial(offered_choices, "runtime"), help_text="Runs the pods on each node."
    )
    provider_settings = JsonField(
        label="Provider settings",
        required=False,
        help_text='JSON, for example {"region": "eu-central-1", ...}. Leave empty if none are needed.',
    )
    kubeconfig = forms.CharField(
        label="Kubeconfig",
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "mono"}),
        help_text="Only for the provider kubernetes: credentials for the cluster, without references to "
        "files. Stored encrypted and never shown. Leave empty to keep the stored ones.",
    )
    nodes_min = forms.IntegerField(label="Minimum nodes", min_value=0, initial=0)
    nodes_max = forms.IntegerField(
        label="Maximum nodes",
        min_value=1,
        required=False,
        initial=4,
        help_text="Leave empty for a fixed size.",
    )
    ready_threshold = forms.IntegerField(
        label="Ready threshold",
        min_value=0,
        required=False,
        help_text="Ready nodes needed before the pool accepts workloads. Default: the minimum.",
    )
    gpus_per_node = forms.IntegerField(label="GPUs per node", min_value=0, max_value=1024, initial=2)
    gpu_model = forms.CharField(label="GPU model", max_length=64, required=False)
    cpu = forms.FloatField(label="CPU cores per node", min_value=0.001, initial=8)
    memory_mib = forms.IntegerField(label="Memory per node (MiB)", min_value=1, initial=16384)
    price_per_gpu_hour = forms.DecimalField(
        label="Price per GPU-hour",
        min_value=0,
        max_digits=10,
        decimal_places=4,
        required=False,
        help_text="Used for cost reports. Default: the provider's list price, if known.",
    )
    node_placement = forms.ChoiceField(
        label="Placement",
        choices=NodePool.Placement.choices,
        initial=NodePool.Placement.AUTO,
        help_text="Auto uses fragmentation for mixed requests and binpack otherwise.",
    )
    autoscale_cooldown = forms.IntegerField(label="Scaling cooldown (s)", min_value=0, initial=30)
    autoscale_idle_timeout = forms.IntegerField(label="Idle timeout (s)", min_value=0, initial=60)
    drain_timeout = forms.IntegerField(label="Drain timeout (s)", min_value=0, initial=600)
    boot_timeout = forms.IntegerField(
        label="Boot timeout (s)", min_value=0, initial=900, help_text="Time for a node to become ready."
    )
    boot_failure_limit = forms.IntegerField(
        label="Boot failure limit",
        min_value=0,
        initial=5,
        help_text="Consecutive failed boots after which provisioning stops. 0: no limit.",
    )
    node_consolidation = forms.ChoiceField(
        label="Node consolidation",
        choices=[
            ("never", "Autoscaler rules only"),
            ("when_empty", "Also remove empty nodes"),
            ("when_underutilised", "Also remove underutilized nodes"),
        ],
        initial=NodePool.NodeConsolidation.NEVER,
        help_text="Moves workloads off removed nodes, except non-preemptible ones and those within their "
        "minimum runtime.",
    )
    node_consolidation_after = forms.IntegerField(label="Consolidation delay (s)", min_value=0, initial=300)
    disruption_budgets = JsonField(
        label="Disruption budgets",
        required=False,
        help_text='JSON: [{"nodes": "10%"}] allows 10% of the nodes to be disrupted at a time; '
        '{"nodes": 0, "schedule": "0 9 * * mon-fri", "duration": "8h", "zone": "Europe/Berlin"} allows none '
        'during office hours. Possible "reasons": empty, underutilised.',
    )
    image_mode = forms.ChoiceField(
        label="Container images",
        choices=[("allow", "Allowed"), ("require", "Required"), ("forbid", "Forbidden")],
        initial="allow",
        help_text="Whether workloads in this pool may or must run in a container image.",
    )
    patterns = environment_fields.LinesField(
        label="Accepted images",
        example="ghcr.io/org/*",
        help_text="Patterns, one per line. Leave empty for all images.",
    )
    reclaim_min_runtime = forms.IntegerField(label="Reclaim minimum runtime (s)", min_value=0, initial=0)
    preempt_min_runtime = forms.IntegerField(label="Preemption minimum runtime (s)", min_value=0, initial=0)
    workspace_limit_mib = forms.IntegerField(
        label="Workspace limit (MiB)",
        min_value=1,
        required=False,
        help_text="Maximum disk space of a workspace and its pods' directories. Pods that exceed the limit "
        "are stopped. Leave empty for no limit.",
    )
    memory_from_request = forms.BooleanField(
        label="Memory from request",
        required=False,
        initial=True,
        help_text="A pod that uses more memory than it requests is killed, unless its document sets a limit.",
    )
    default_memory_mib = forms.IntegerField(
        label="Default memory limit (MiB)",
        min_value=MEMORY_LIMIT_MIN_MIB,
        required=False,
        help_text="Applies to all other pods without a memory limit. Leave empty for no limit.",
    )
    cpu_from_request = forms.BooleanField(
        label="Limit CPU to request",
        required=False,
        help_text="Pods cannot use idle CPU beyond their request, unless their document sets a limit.",
    )
    default_cpu = forms.FloatField(
        label="Default CPU limit (cores)",
        min_value=CPU_LIMIT_MIN,
        required=False,
        help_text="Applies to all other pods without a CPU limit. Leave empty for no limit.",
    )
    version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields.update(environment_fields.environment_fields())

    def values(self) -> dict[str, Any]:
        environment = environment_fields.environment_fields()
        excluded = {"name", "cpu", "version", "confirmed", "image_mode", "patterns"}
        excluded |= {*LIMIT_FIELDS, *environment}
        values = {key: value for key, value in self.cleaned_data.items() if key not in excluded}
        values |= environment_fields.environment_values(self.cleaned_data)
        values["default_limits"] = {key: self.cleaned_data[name] for name, key in LIMIT_FIELDS.items()}
        values["provider_settings"] = values["provider_settings"] or {}
        values["disruption_budgets"] = values["disruption_budgets"] or []
        if not values["kubeconfig"]:
            del values["kubeconfig"]
        mode, patterns = self.cleaned_data["image_mode"], self.cleaned_data["patterns"]
        values["image_policy"] = {"mode": mode, "patterns": patterns}
        return {**values, "cpu_milli": round(self.cleaned_data["cpu"] * MILLI)}


class SettingsForm(PoolForm):
    """Form for an existing pool. Name, provider and runtime are omitted, because they cannot change."""

    confirmed = forms.IntegerField(widget=forms.HiddenInput, required=False)  # confirmed number of nodes

    field_order = ["nodes_min", "nodes_max", "ready_threshold"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for fixed in ("name", "provider", "runtime"):
            del self.fields[fixed]

    def show_secret_times(self, pool: NodePool) -> None:
        """Show when each stored secret was set."""
        for name, text in environment_fields.secret_help_texts(pool):
            if name in self.fields:
                self.fields[name].help_text = text

    def keep_secrets(self) -> None:
        """Keep the entered secrets in the confirmation form, so that they are submitted again."""
        for field in self.fields.values():
            if isinstance(field.widget, forms.PasswordInput):
                field.widget.render_value = True


class ScaleForm(Form):
    nodes_desired = forms.IntegerField(label="Desired nodes", min_value=0)
    version = forms.IntegerField(widget=forms.HiddenInput)
    confirmed = forms.IntegerField(widget=forms.HiddenInput, required=False)  # confirmed number of nodes


class ReasonForm(Form):
    reason = forms.CharField(
        label="Reason", max_length=200, required=False, help_text="Recorded in the history."
    )


class JoinTokenForm(Form):
    comment = forms.CharField(
        label="Comment",
        max_length=100,
        required=False,
        help_text="For example, the rack of the machines.",
    )
    machines = forms.IntegerField(label="Machines", min_value=1, max_value=MAX_MACHINES)
    lasts = forms.ChoiceField(
        label="Expires after",
        choices=(
            ("3600", "1 hour"), ("86400", "1 day"), ("604800", "7 days"), ("2592000", "30 days"),
            ("31536000", "1 year"),
        ),
    )  # fmt: skip


def initial_values(pool: NodePool) -> dict[str, Any]:
    fields = {name: getattr(pool, name) for name in PoolForm.base_fields if hasattr(pool, name)}
    limits = DefaultLimits.model_validate(pool.default_limits).model_dump()
    fields |= {name: limits[key] for name, key in LIMIT_FIELDS.items()}
    fields |= environment_fields.initial_values(pool)
    policy = read_policy(pool.image_policy)
    fields |= {"image_mode": policy.mode, "patterns": "\n".join(policy.patterns)}
    return {**fields, "cpu": pool.cpu_milli / MILLI, "version": pool.version}
