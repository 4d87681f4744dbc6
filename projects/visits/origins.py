"""Map ports of workloads to host names and back.

What a pod serves is written by whoever submitted it. On a host of its own its scripts can neither read nor
ask anything of Berth in the visitor's name, nor of another workload's port.
"""

import re
import uuid
from dataclasses import dataclass
from urllib.parse import urlsplit

LABEL = re.compile(r"([0-9a-f]{32})-([a-z](?:[-a-z0-9]{0,13}[a-z0-9])?)", re.ASCII)
USUAL = {"http": 80, "https": 443}
FORM = "is written like https://*.apps.example.org"


@dataclass(frozen=True, slots=True)
class Origins:
    """`suffix` begins with a dot and stands behind each port's label."""

    scheme: str
    suffix: str
    port: int

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    def of(self, workload: uuid.UUID, port: str) -> str:
        shown = "" if self.port == USUAL[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{workload.hex}-{port}{self.suffix}{shown}"

    def named_by(self, host: str) -> tuple[uuid.UUID, str] | None:
        """The workload and the port that a Host header names; None for every other host."""
        name = host.lower().rpartition(":")[0] if re.search(r":\d+$", host) else host.lower()
        if not name.endswith(self.suffix):
            return None
        found = LABEL.fullmatch(name.removesuffix(self.suffix))
        return None if found is None else (uuid.UUID(hex=found[1]), found[2])


def origins(text: str) -> Origins | None:
    """None for no text. Raises ValueError."""
    if not text:
        return None
    parts = urlsplit(text.rstrip("/"))
    host = (parts.hostname or "").lower()
    if parts.scheme not in USUAL or not host.startswith("*.") or len(host) < 3 or "*" in host[1:]:
        raise ValueError(FORM)
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(FORM)
    return Origins(parts.scheme, host[1:], parts.port or USUAL[parts.scheme])
