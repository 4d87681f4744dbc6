"""Interface for resolving image tags to digests in the background."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from berth.core.values.images import ImageReference

TEXT_MAX = 500
RunKey = tuple[uuid.UUID, int]  # workload ID and run number


class RegistryErrorKind(StrEnum):
    """Kind of registry failure.

    Each value is also the reason recorded for workloads that fail with the error.
    """

    UNAUTHORIZED = "ImageUnauthorized"
    NOT_FOUND = "ImageNotFound"
    FORBIDDEN = "RegistryForbidden"  # Berth must not call the registry's address
    UNREACHABLE = "RegistryUnreachable"
    TIMEOUT = "RegistryTimeout"
    FAILED = "RegistryFailed"  # the response was unexpected


PERMANENT = frozenset(
    {RegistryErrorKind.UNAUTHORIZED, RegistryErrorKind.NOT_FOUND, RegistryErrorKind.FORBIDDEN}
)


class RegistryError(Exception):
    """Raised if a tag could not be resolved. The message is a sentence."""

    def __init__(self, fault: RegistryErrorKind, text: str) -> None:
        super().__init__("".join(char if char.isprintable() else " " for char in text[:TEXT_MAX]))
        self.fault = fault

    @property
    def is_permanent(self) -> bool:
        """Whether all further attempts would fail."""
        return self.fault in PERMANENT


@dataclass(frozen=True, slots=True)
class Resolution:
    """Result of one lookup: the digest or the error."""

    digest: str = ""
    error: RegistryError | None = None


class DigestResolver(Protocol):
    """Digest lookups in the background, so that slow registries do not delay the scheduler."""

    def request(self, key: RunKey, image: ImageReference, auth: str) -> None:
        """Start a lookup for the run unless it already has one.

        `auth` is the content of an auth.json, or empty. Returns immediately.
        """
        ...

    def take_results(self, keys: Collection[RunKey]) -> Mapping[RunKey, Resolution]:
        """Remove and return the results of the runs' finished lookups. Discard the results of other runs."""
        ...

    def wake_fds(self) -> tuple[int, ...]:
        """Return file descriptors that become readable when a lookup finishes."""
        ...

    def clear_wakeups(self) -> None:
        """Discard the wake-up signals that are pending on the file descriptors."""
        ...
