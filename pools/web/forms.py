"""Forms that create and edit node pools."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django import forms
from django.conf import settings
from django.utils.functional import lazy

from berth.core.spec.values.quantities import CPU_LIMIT_MIN, MEMORY_LIMIT_MIN_MIB
from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count
from berth.server.web.faults import add_remaining_errors
from berth.server.web.forms import Form, FormSection
from pools.costs import HOURS_PER_MONTH
from pools.engine.image_policy import read_policy
from pools.engine.pod_limits import DefaultLimits
from pools.models import NodePool
from pools.providers.ssh.settings import DEFAULT_KEY
from pools.runtimes.capabilities import KUBERNETES
from pools.services.allowed_backends import form_choices
from pools.services.machines import MAX_MACHINES
from pools.web import environment_fields, provider_fields
from pools.web.document_fields import JsonField
from pools.web.duration_field import DurationField
from pools.web.idle_rule_field import IdleRuleField
from pools.web.memory_field import MemoryField
from pools.web.pool_sections import pool_sections, provider_choices

# Form field of each default limit.
LIMIT_FIELDS = {
    "memory_from_request": "memory_from_request",
    "default_memory_mib": "memory_mib",
    "cpu_from_request": "cpu_from_request",
    "default_cpu": "cpu",
}
# Form field for the private key of each provider.
KEY_FIELDS: Mapping[str, str] = {NodePool.Provider.SSH: "private_key", NodePool.Provider.SLURM: "login_key"}
UNSTORED = {
    "name", "cpu", "version", "confirmed", "image_mode", "patterns", *KEY_FIELDS.values(), *LIMIT_FIELDS,
}  # fmt: skip
OMITTED_IF_EMPTY = {"kubeconfig", "runtime", "slurm_token"}
NODE_PATHS = {"nodes.min": "nodes_min", "nodes.max": "nodes_max", "nodes.desired": "ready_threshold"}
NODE_FIELDS = frozenset(NODE_PATHS.values())
PATHS = NODE_PATHS | {
    "cpu_milli": "cpu",
    "image_policy.mode": "image_mode",
    "nodes": "nodes_max",
    "min": "nodes_min",
    "max": "nodes_max",
}


class PoolForm(Form):
    is_new = True
    name = forms.CharField(label="Name", max_length=40, help_text="Lowercase letters, digits and hyphens.")
    provider = forms.ChoiceField(label="Provider", choices=provider_choices, help_text="Source of the nodes.")
    runtime = forms.ChoiceField(
        label="Runtime",
        choices=lambda: [("", "Default for the provider"), *form_choices("runtime")],
        required=False,
        help_text="Runs the pods on each node.",
    )
    kubeconfig = forms.CharField(
        label="Kubeconfig",
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "mono"}),
        help_text="Credentials for the cluster, without references to files. Stored encrypted and never "
        "shown. Leave empty to keep the stored credentials.",
    )
    private_key = forms.CharField(
        label="Private key",
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "mono"}),
        help_text="OpenSSH private key without a passphrase. Stored encrypted as a pool secret and never "
        "shown. Leave empty to keep the stored key.",
    )
    login_key = forms.CharField(
        label="Private key",
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "mono"}),
        help_text="OpenSSH private key for the login node, without a passphrase. Stored encrypted as a pool "
        "secret and never shown. Leave empty to keep the stored key, or to use the login node's "
        "`key: secret:NAME`.",
    )
    slurm_token = forms.CharField(
        label="slurmrestd token",
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Output of scontrol token. Stored encrypted and never shown. Leave empty to keep the "
        "stored token.",
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
        help_text="Ready nodes needed before the pool accepts workloads. Defaults to the minimum.",
    )
    gpus_per_node = forms.IntegerField(label="GPUs per node", min_value=0, max_value=1024, initial=2)
    gpu_model = forms.CharField(label="GPU model", max_length=64, required=False)
    cpu = forms.FloatField(label="CPU cores per node", min_value=0.001, initial=8)
    memory_mib = MemoryField(label="Memory per node", max_length=20, initial=16384)
    price_per_gpu_hour = forms.DecimalField(
        label=lazy(lambda: f"Price per GPU-hour ({settings.BERTH_CURRENCY})", str)(),
        min_value=0,
        max_digits=10,
        decimal_places=4,
        required=False,
        help_text="Used for cost reports. Defaults to the provider's list price, if known.",
    )
    node_placement = forms.ChoiceField(
        label="Placement",
        choices=NodePool.Placement.choices,
        initial=NodePool.Placement.AUTO,
        help_text="Auto uses fragmentation if nodes or requests are mixed, and binpack otherwise.",
    )
    autoscale_cooldown = DurationField(label="Scaling cooldown", initial=30)
    autoscale_idle_timeout = DurationField(label="Idle timeout", initial=60)
    drain_timeout = DurationField(label="Drain timeout", initial=600)
    boot_timeout = DurationField(
        label="Boot timeout", initial=900, help_text="Maximum time for a node to become ready."
    )
    boot_failure_limit = forms.IntegerField(
        label="Boot failure limit",
        min_value=0,
        initial=5,
        help_text="Number of consecutive failed boots after which provisioning stops. 0 means unlimited.",
    )
    node_consolidation = forms.ChoiceField(
        label="Node consolidation",
        choices=[
            ("never", "Autoscaler rules only"),
            ("when_empty", "Also remove empty nodes"),
            ("when_underutilized", "Also remove underutilized nodes"),
        ],
        initial=NodePool.NodeConsolidation.NEVER,
        help_text="Workloads on removed nodes are moved to other nodes. Non-preemptible workloads and those "
        "within their minimum runtime are not moved.",
    )
    node_consolidation_after = DurationField(label="Consolidation delay", initial=300)
    disruption_budgets = JsonField(
        label="Disruption budgets",
        required=False,
        help_text='JSON: [{"nodes": "10%"}] allows 10% of the nodes to be disrupted at a time; '
        '{"nodes": 0, "schedule": "0 9 * * mon-fri", "duration": "8h", "zone": "Europe/Berlin"} allows none '
        'during office hours. Possible "reasons": empty, underutilized.',
    )
    image_mode = forms.ChoiceField(
        label="Container images",
        choices=[("allow", "Allowed"), ("require", "Required"), ("forbid", "Forbidden")],
        initial="allow",
        help_text="Whether workloads in this pool may, must or must not run in a container image.",
    )
    patterns = environment_fields.LinesField(
        label="Allowed images",
        example="ghcr.io/org/*",
        help_text="Patterns, one per line. Leave empty to allow all images.",
    )
    idle_rule = IdleRuleField(
        help_text="Rule for workloads with idle GPUs, for example "
        "below=5%,after=1h,action=suspend,grace=30m. Leave empty for no rule."
    )
    volumes = JsonField(
        label="Volumes",
        required=False,
        help_text='JSON: [{"name": "datasets", "source": "/mnt/datasets", "access": "read_only", "nodes": '
        '{"storage": "nfs"}, "projects": ["vision"]}]. Without "nodes", all nodes have the directory. '
        'Without "projects", all projects may use it. The other "access" is read_write. The source of a '
        'volume can also be "s3://bucket/prefix", with "secret" (an S3 key of the pool), "region", '
        '"endpoint" and "max_gib".',
    )
    reclaim_min_runtime = DurationField(label="Reclaim minimum runtime", initial=0)
    preempt_min_runtime = DurationField(label="Preemption minimum runtime", initial=0)
    workspace_limit_mib = forms.IntegerField(
        label="Workspace limit (MiB)",
        min_value=1,
        required=False,
        help_text="Maximum disk space of a workspace and its pods' directories. Pods that exceed the limit "
        "are stopped. Leave empty for unlimited.",
    )
    memory_from_request = forms.BooleanField(
        label="Enforce memory requests",
        required=False,
        initial=True,
        help_text="A pod that uses more memory than it requests is killed, unless its document sets a limit.",
    )
    default_memory_mib = forms.IntegerField(
        label="Default memory limit (MiB)",
        min_value=MEMORY_LIMIT_MIN_MIB,
        required=False,
        help_text="Applies to all other pods without a memory limit. Leave empty for unlimited.",
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
        help_text="Applies to all other pods without a CPU limit. Leave empty for unlimited.",
    )
    version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields.update(environment_fields.environment_fields())
        for provider in self.providers():
            self.fields.update(provider_fields.provider_fields(provider))

    def providers(self) -> list[str]:
        """Return the providers whose settings have form fields."""
        return [provider for provider, _ in form_choices("provider")]

    def sections(self) -> Sequence[FormSection]:
        return pool_sections(self.providers())

    def keep_secrets(self) -> None:
        """Keep the entered secrets when the form is shown again, so that the user need not enter them
        twice.
        """
        for field in self.fields.values():
            if isinstance(field.widget, forms.PasswordInput):
                field.widget.render_value = True

    def add_remaining_errors(self, check: Callable[[Mapping[str, Any]], object]) -> None:
        """Add the errors that `check` finds in valid fields, so that all errors are shown together.

        `check` receives defaults instead of invalid values.
        """
        if "provider" in self.errors:
            return
        invalid = self.reset_invalid_fields()
        if invalid & NODE_FIELDS:
            invalid |= NODE_FIELDS
        fields = self.field_names_by_path()
        add_remaining_errors(self, lambda: check(self.values()), fields, invalid=invalid)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        is_ssh = self.is_new and self.chosen_provider() == NodePool.Provider.SSH
        if is_ssh and not cleaned.get("ssh_hosts", True):
            self.add_error("ssh_hosts", "Enter at least one host, for example: - address: gpu-1.example.org")
        return cleaned

    def values(self) -> dict[str, Any]:
        """Return the form's values as the services expect them, keyed by model field."""
        cleaned, provider = self.cleaned_data, self.chosen_provider()
        values = {
            name: cleaned[name] for name in self.base_fields if name in cleaned and name not in UNSTORED
        }
        values |= environment_fields.environment_values(cleaned)
        values |= {
            "provider_settings": provider_fields.provider_values(provider, cleaned),
            "default_limits": {key: cleaned[name] for name, key in LIMIT_FIELDS.items()},
            "disruption_budgets": cleaned["disruption_budgets"] or [],
            "volumes": cleaned["volumes"] or [],
            "image_policy": {"mode": cleaned["image_mode"], "patterns": cleaned["patterns"]},
            "cpu_milli": round(cleaned["cpu"] * MILLI),
        }
        if private_key := cleaned.get(KEY_FIELDS.get(provider, "")):
            reference = self._key_settings(provider).get("key", DEFAULT_KEY)
            values["ssh_keys"] = {reference.removeprefix("secret:"): private_key.replace("\r\n", "\n")}
        return {name: value for name, value in values.items() if value or name not in OMITTED_IF_EMPTY}

    def clean_login_key(self) -> str:
        """Reject an SSH key if the pool has no login node."""
        key = str(self.cleaned_data["login_key"])
        login = self.data.get(f"{NodePool.Provider.SLURM}_login", "").strip()
        if key and not login and self.chosen_provider() == NodePool.Provider.SLURM:
            message = "Only a login node needs a key. Set the login node, or clear the key."
            raise forms.ValidationError(message)
        return key

    def _key_settings(self, provider: str) -> Mapping[str, Any]:
        """Return the section of a provider's settings that names the SSH key."""
        settings = provider_fields.provider_values(provider, self.cleaned_data)
        login = settings.get("login") if provider == NodePool.Provider.SLURM else settings
        return login if isinstance(login, Mapping) else {}

    def chosen_provider(self) -> str:
        return str(self.cleaned_data.get("provider", ""))

    def field_names_by_path(self) -> dict[str, str]:
        """Map the paths in problems to the names of form fields, where the two differ."""
        return PATHS | provider_fields.field_names_by_path(self.chosen_provider())

    def set_machine_defaults(self, gpus: int) -> None:
        """Set the default number of GPUs per node for pools on this machine, which has `gpus` GPUs."""
        field = self.fields["gpus_per_node"]
        field.initial = min(gpus, field.initial)
        field.help_text = f"This machine has {format_count(gpus, 'GPU')}."
        self.set_display_hints("gpus_per_node", hint_shown_for=f"provider={NodePool.Provider.LOCAL}")


class SettingsForm(PoolForm):
    """Form that edits a pool, without fields for name, provider and runtime, which cannot change."""

    is_new = False

    def __init__(self, pool: NodePool, *args: Any, **kwargs: Any) -> None:
        self.pool = pool
        super().__init__(*args, **kwargs)
        for fixed in ("name", "provider", "runtime"):
            del self.fields[fixed]
        if pool.provider != KUBERNETES:
            del self.fields["kubeconfig"]
        if pool.provider != NodePool.Provider.SLURM:
            del self.fields["slurm_token"]
        for provider, name in KEY_FIELDS.items():
            if pool.provider != provider:
                del self.fields[name]
        if (price := pool.price_per_gpu_hour) is not None and pool.gpus_per_node:
            for_month = f"{price * pool.gpus_per_node * HOURS_PER_MONTH:,.0f} {settings.BERTH_CURRENCY}"
            self.fields["price_per_gpu_hour"].help_text += f" A node costs about {for_month} in 30 days."

    def providers(self) -> list[str]:
        return [self.pool.provider]

    def chosen_provider(self) -> str:
        return self.pool.provider

    def show_secret_times(self) -> None:
        """Show when each stored secret of the pool was set."""
        for name, text in environment_fields.secret_help_texts(self.pool):
            if name in self.fields:
                self.fields[name].help_text = text


class ScaleForm(Form):
    nodes_desired = forms.IntegerField(label="Desired nodes", min_value=0)
    version = forms.IntegerField(widget=forms.HiddenInput)
    # Number of drained nodes that the user has confirmed.
    confirmed = forms.IntegerField(widget=forms.HiddenInput, required=False)


class ReasonForm(Form):
    reason = forms.CharField(
        label="Reason", max_length=200, required=False, help_text="Recorded in the history."
    )


class JoinTokenForm(Form):
    comment = forms.CharField(
        label="Comment",
        max_length=100,
        required=False,
        help_text="Machines that use the token, for example those of one rack.",
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
    fields |= provider_fields.initial_values(pool.provider, pool.provider_settings)
    policy = read_policy(pool.image_policy)
    fields |= {"image_mode": policy.mode, "patterns": "\n".join(policy.patterns)}
    fields |= {"cpu": f"{pool.cpu_milli / MILLI:g}", "version": pool.version}
    if pool.price_per_gpu_hour is not None:
        fields["price_per_gpu_hour"] = f"{pool.price_per_gpu_hour.normalize():f}"
    return fields
