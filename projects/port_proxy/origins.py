"""Map workload ports to host names and back.

Each port has its own host, so that scripts from a pod can neither read Berth's pages nor act for the visitor.
"""

import re
import uuid
from dataclasses import dataclass
from urllib.parse import urlsplit

LABEL = re.compile(r"([0-9a-f]{32})-([a-z](?:[-a-z0-9]{0,13}[a-z0-9])?)", re.ASCII)
DEFAULT_PORTS = {"http": 80, "https": 443}
EXPECTED_FORM = "must look like https://*.apps.example.org"


@dataclass(frozen=True, slots=True)
class Origins:
    """Web origins of workload ports.

    `suffix` begins with a dot and follows the port's label in host names.
    """

    scheme: str
    suffix: str
    port: int

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    def origin_for(self, workload: uuid.UUID, port: str) -> str:
        shown = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{workload.hex}-{port}{self.suffix}{shown}"

    def parse_host(self, host: str) -> tuple[uuid.UUID, str] | None:
        """Return the workload and port from a Host header, or None for any other host."""
        name = host.lower().rpartition(":")[0] if re.search(r":\d+$", host) else host.lower()
        if not name.endswith(self.suffix):
            return None
        match = LABEL.fullmatch(name.removesuffix(self.suffix))
        return None if match is None else (uuid.UUID(hex=match[1]), match[2])


def parse_origins(text: str) -> Origins | None:
    """Parse BERTH_APPS_ORIGIN. Return None if it is empty. Raises ValueError if it is invalid."""
    if not text:
        return None
    parts = urlsplit(text.rstrip("/"))
    host = (parts.hostname or "").lower()
    if parts.scheme not in DEFAULT_PORTS or not host.startswith("*.") or len(host) < 3 or "*" in host[1:]:
        raise ValueError(EXPECTED_FORM)
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(EXPECTED_FORM)
    return Origins(parts.scheme, host[1:], parts.port or DEFAULT_PORTS[parts.scheme])
