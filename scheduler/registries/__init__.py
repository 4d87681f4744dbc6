"""Resolve container image tags to digests by querying registries."""

from scheduler.registries.base import DigestResolver, RegistryError, Resolution
from scheduler.registries.resolver import HttpResolver

__all__ = ["DigestResolver", "HttpResolver", "RegistryError", "Resolution"]
