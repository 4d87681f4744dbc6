"""Configure the web server, both for `berth up` and for a process behind a proxy."""

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
FILES_FOR_THE_REST = 256  # for database connections, logs and calls to pods
FEWEST_CONNECTIONS = 64


def config(application: Any = APPLICATION, **options: Any) -> uvicorn.Config:
    """Return the uvicorn configuration. `options` are the address and the grace period of the process.

    X-Forwarded-For and X-Forwarded-Proto are trusted only from the proxies in BERTH_TRUSTED_PROXIES, because
    any process on this machine, including tenants' pods, could send these headers.
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
    """Return a predicate that tests whether an address belongs to one of these networks."""
    networks = [ip_network(proxy) for proxy in proxies]

    @lru_cache(maxsize=1024)
    def contains(address: str) -> bool:
        try:
            return any(ip_address(address) in network for network in networks)
        except ValueError:  # a Unix socket has no address
            return False

    return contains


def most_connections() -> int:
    """Raise the soft limit on open files, and return the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        soft = 2**20
    return max(FEWEST_CONNECTIONS, soft - FILES_FOR_THE_REST)
