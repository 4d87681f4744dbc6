"""Validate a pool's provider settings."""

from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from pools.kubernetes.settings import kubernetes_settings
from pools.providers.aws.settings import aws_settings


def check_settings(provider: str, value: Any) -> None:
    if provider == "aws":
        aws_settings(value)
    elif provider == "kubernetes":
        kubernetes_settings(value)
    elif value != {}:
        message = f"are not supported by the provider {provider}"
        raise Invalid([Problem("provider_settings", message, format_value(value), "nothing")])
