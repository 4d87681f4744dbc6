"""Resolve the machine image, by id or SSM parameter."""

from pools.providers.aws.clients import Clients
from pools.providers.aws.settings import AwsSettings
from pools.providers.base import ProviderError, ProviderErrorKind


def image_id(clients: Clients, settings: AwsSettings) -> str:
    if settings.image is not None:
        return settings.image
    found = clients.ssm.get_parameter(Name=settings.image_parameter)["Parameter"]["Value"]
    if not str(found).startswith("ami-"):
        message = f"the parameter {settings.image_parameter} holds no image id"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return str(found)
