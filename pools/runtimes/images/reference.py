"""Parse references to images by digest, such as `registry.example.com/team/train@sha256:...`."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Grammar from the OCI distribution specification. A reference without a registry host is ambiguous.
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:)|\[[0-9a-fA-F:]+\])(?::\d{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATTERN = re.compile(rf"(?P<host>{_HOST})/(?P<name>{_PART}(?:/{_PART})*)@sha256:(?P<digest>[0-9a-f]{{64}})")
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?")
REFERENCE_MAX = 400


class InvalidReference(ValueError):
    """Raised if the text is not a reference by digest."""


@dataclass(frozen=True)
class Reference:
    """Reference to the image `name` in the registry `host`. `digest` has 64 hexadecimal digits."""

    host: str
    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.host}/{self.name}@sha256:{self.digest}"

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this machine, where plain HTTP is acceptable."""
        return _LOOPBACK.fullmatch(self.host) is not None


def parse_reference(text: str) -> Reference:
    """Parse a reference by digest. Raises InvalidReference."""
    match = _PATTERN.fullmatch(text) if len(text) <= REFERENCE_MAX else None
    if match is None:
        raise InvalidReference(
            f"invalid reference {text[:REFERENCE_MAX]!r}. "
            "Nodes require registry/name@sha256: followed by 64 hexadecimal digits"
        )
    return Reference(match["host"], match["name"], match["digest"])
