"""Validate a pool's provider settings."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from pools.kubernetes.settings import KubernetesSettings, kubernetes_settings
from pools.providers.aws.settings import AwsSettings, aws_settings
from pools.providers.slurm.settings import SlurmSettings, check_time_limit, slurm_settings
from pools.providers.ssh.settings import SshSettings, ssh_settings

# Settings model of each provider that has settings. Forms are generated from these models.
MODELS: Mapping[str, type[BaseModel]] = {
    "aws": AwsSettings, "kubernetes": KubernetesSettings, "ssh": SshSettings, "slurm": SlurmSettings,
}  # fmt: skip
_PARSERS: Mapping[str, Callable[[Any], object]] = {
    "aws": aws_settings, "kubernetes": kubernetes_settings, "ssh": ssh_settings,
}  # fmt: skip


def check_settings(provider: str, value: Any, boot_timeout: int) -> None:
    """Raise Invalid with the path of each problem within `provider_settings`."""
    if provider == "slurm":
        check_time_limit(slurm_settings(value), boot_timeout)
    elif provider in _PARSERS:
        _PARSERS[provider](value)
    elif value != {}:
        message = f"are not supported by the provider {provider}"
        raise Invalid([Problem("provider_settings", message, format_value(value), "nothing")])
