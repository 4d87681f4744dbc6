"""Fetch the data of `berth top --service` with concurrent requests."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from typing_extensions import Self

from berth.cli.printing.text import utc_now
from berth.client.config import InvalidSettings, Settings, load_settings
from berth.client.retry import RetryPolicy
from berth.client.sync.transport import Transport
from berth.client.sync.workloads.workloads import Workloads

HISTORY = 20
ROOT = "/api/v1/services/"


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    at: datetime
    status: Mapping[str, Any]
    conditions: Mapping[str, Any]
    engines: Mapping[str, Any]
    history: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Name of a service and address of its server. An empty address means the configured server."""

    service: str
    address: str = ""


def parse_service_address(service: str, url: str) -> ServiceAddress:
    """Parse `--service` and `--url`.

    The URL may point to a server, a service or the service's autoscaler. Raises InvalidSettings unless
    exactly one service is named.
    """
    parts = urlsplit(url)
    if url and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise InvalidSettings(
            f"--url {url!r} is not a valid address. Use http://HOST[:PORT][{ROOT}NAME/autoscaler]."
        )
    before, root, after = parts.path.partition(ROOT)
    named = after.strip("/").removesuffix("/autoscaler") if root else ""
    if named and service and named != service:
        raise InvalidSettings(
            f"--url refers to service {named}, but --service specifies {service}. Remove one of the options."
        )
    if not (service or named):
        raise InvalidSettings(
            "--service is missing. Specify the name of a service, or --url with its address."
        )
    address = f"{parts.scheme}://{parts.netloc}{before.rstrip('/')}" if url else ""
    return ServiceAddress(service or named, address)


class ServiceWatcher:
    """Client that fetches one service's data.

    Requests are not retried, because the next refresh follows soon.
    """

    def __init__(
        self,
        target: ServiceAddress,
        settings: Settings | None = None,
        *,
        transport: Callable[[Settings], Transport] | None = None,
    ) -> None:
        self.settings = settings or _load_settings(target)
        self._transport = (transport or _transport)(self.settings)
        self.target, self._root = target, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._transport.close()

    def fetch_snapshot(self) -> ServiceSnapshot:
        root = self._root or self._resolve_root()
        get = self._transport.get
        return ServiceSnapshot(
            utc_now(),
            get(f"{root}/autoscaler/status"),
            get(f"{root}/autoscaler/conditions"),
            get(f"{root}/engines"),
            get(f"{root}/autoscaler/scale_history", {"limit": HISTORY}),
        )

    def _resolve_root(self) -> str:
        name = self.target.service
        if "/" in name:
            # A service can also be addressed by the ID of its workload.
            name = str(Workloads(self._transport).find(name).id)
        self._root = f"services/{quote(name, safe='')}"
        return self._root


def _load_settings(target: ServiceAddress) -> Settings:
    """Load the settings. A stored token is sent only to the server that issued it."""
    named = {"BERTH_URL": target.address} if target.address else {}
    return load_settings({**os.environ, **named})


def _transport(settings: Settings) -> Transport:
    return Transport(settings, retry_policy=RetryPolicy(attempts=1))
