"""Configure the web server, for `berth up` and for a process behind a proxy alike."""

import importlib
import resource
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

import uvicorn
from django.conf import settings

from berth.server.front.protocol import Addresses, protocols

APPLICATION = "berth.server.asgi:application"
FILES_FOR_THE_REST = 256  # database connections, logs, calls to pods
FEWEST_CONNECTIONS = 64


def config(application: Any = APPLICATION, **options: Any) -> uvicorn.Config:
    """Return the configuration of uvicorn; `options` are the address and the grace period of the process.

    The headers X-Forwarded-For and X-Forwarded-Proto count only from the proxies that BERTH_TRUSTED_PROXIES
    names: any process of this machine could send them, pods of tenants included.
    """
    importlib.import_module("berth.server.asgi")  # loads the settings
    proxies: list[str] = settings.BERTH_TRUSTED_PROXIES
    http, websockets = protocols(Addresses(settings.BERTH_CONNECTIONS_PER_ADDRESS, within(proxies)))
    return uvicorn.Config(
        application,
        http=http,
        ws=websockets,
        limit_concurrency=most_connections(),
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        access_log=False,
        log_config=None,  # Django's settings configure logging
        lifespan="off",
        server_header=False,
        **options,
    )


def within(proxies: list[str]) -> Callable[[str], bool]:
    """Return a test of whether an address belongs to one of these networks."""
    networks = [ip_network(proxy) for proxy in proxies]

    @lru_cache(maxsize=1024)
    def contains(address: str) -> bool:
        try:
            return any(ip_address(address) in network for network in networks)
        except ValueError:  # a socket in the file system has no address
            return False

    return contains


def most_connections() -> int:
    """Return the maximum number of connections by the limit of open files; raise the soft limit first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        soft = 2**20
    return max(FEWEST_CONNECTIONS, soft - FILES_FOR_THE_REST)
