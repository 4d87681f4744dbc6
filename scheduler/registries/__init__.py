"""Resolve the tags of container images to digests at their registries."""

from scheduler.registries.base import DigestResolver, RegistryError, Resolution
from scheduler.registries.resolver import HttpResolver

__all__ = ["DigestResolver", "HttpResolver", "RegistryError", "Resolution"]
