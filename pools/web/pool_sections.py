"""Sections of the forms that create and edit node pools."""

from collections.abc import Iterable, Mapping, Sequence

from berth.server.web.forms import FormSection
from pools.providers.settings import MODELS
from pools.services.allowed_backends import form_choices
from pools.web.environment_fields import environment_fields
from pools.web.provider_fields import provider_fields

NAMES = {
    "local": "This machine",
    "static": "Joined machines",
    "ssh": "SSH hosts",
    "aws": "Amazon EC2",
    "kubernetes": "Kubernetes",
    "slurm": "Slurm",
}
# Explanations of how Berth uses each provider that has settings.
EXPLANATIONS = {
    "aws": "Berth starts and terminates instances with the credentials of its own machine.",
    "kubernetes": "The pool uses nodes of your cluster. Berth creates no nodes.",
    "ssh": "Berth installs its agent on the hosts, and uninstalls it when a host is removed.",
    "slurm": "Each node is a job in your cluster. Berth runs Slurm's programs, or calls slurmrestd.",
}
# Credential fields of each provider, and the setting after which each is shown. "" puts the field first.
CREDENTIALS: Mapping[str, Mapping[str, str]] = {
    "kubernetes": {"kubeconfig": ""}, "ssh": {"private_key": ""},
    "slurm": {"login_key": "slurm_login", "slurm_token": "slurm_rest_user"},
}  # fmt: skip


def provider_choices() -> list[tuple[str, str]]:
    """Return the providers that users may choose, with their labels."""
    return [(value, NAMES.get(value, label)) for value, label in form_choices("provider")]


def pool_sections(providers: Iterable[str]) -> Sequence[FormSection]:
    """Return the form sections, including one for each provider's settings."""
    return (
        FormSection("General", ("name", "provider", "runtime")),
        *(
            FormSection(
                NAMES[provider],
                _section_fields(provider),
                EXPLANATIONS[provider],
                shown_for=("provider", provider),
            )
            for provider in providers
            if provider in MODELS
        ),
        FormSection("Size", ("nodes_min", "nodes_max", "ready_threshold")),
        FormSection(
            "Node", ("gpus_per_node", "gpu_model", "cpu", "memory_mib", "price_per_gpu_hour"),
            "Nodes that report their own hardware override these values.",
        ),
        FormSection(
            "Scaling",
            (
                "autoscale_cooldown", "autoscale_idle_timeout", "drain_timeout", "boot_timeout",
                "boot_failure_limit", "node_consolidation", "node_consolidation_after", "disruption_budgets",
            ),
            "Timeouts, failed boots, consolidation, disruption budgets.",
            is_folded=True,
        ),
        FormSection(
            "Scheduling", ("node_placement", "reclaim_min_runtime", "preempt_min_runtime", "idle_rule"),
            "Placement, minimum runtimes before an eviction, and idle GPUs.", is_folded=True,
        ),
        FormSection(
            "Limits",
            (
                "memory_from_request", "default_memory_mib", "cpu_from_request", "default_cpu",
                "workspace_limit_mib",
            ),
            "Default memory, CPU and disk limits for pods.",
            is_folded=True,
        ),
        FormSection(
            "Volumes", ("volumes",), "Node directories and S3 objects that workloads may mount.",
            is_folded=True,
        ),
        FormSection("Images", ("image_mode", "patterns"), "Accepted container images.", is_folded=True),
        FormSection(
            "Software", tuple(environment_fields()), "Plugins, packages and variables of the pool.",
            is_folded=True,
        ),
    )  # fmt: skip


def _section_fields(provider: str) -> tuple[str, ...]:
    credentials, names = CREDENTIALS.get(provider, {}), [""]
    names += provider_fields(provider)
    ordered = [[name, *(each for each in credentials if credentials[each] == name)] for name in names]
    return tuple(name for group in ordered for name in group if name)
