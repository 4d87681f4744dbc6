"""Configure the web server, for `berth up` and for processes behind a proxy."""

import gc
import importlib
import resource
import select
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

import psycopg
import uvicorn
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.signals import connection_created

from berth.server.front.protocol import ConnectionCounter, protocol_classes
from berth.server.tracing.spans import set_process_name

APPLICATION = "berth.server.asgi:application"
RESERVED_FILES = 256  # file descriptors reserved for database connections, logs and calls to pods
CONNECTIONS_MIN = 64
DATABASE_WAIT_SECONDS = 10
# Longer than a proxy keeps idle connections (nginx: 60 s), so that it never reuses one that is being closed.
KEEP_ALIVE_SECONDS = 75
NEW_OBJECTS = 5000  # new objects between garbage collections; reference counting frees nearly all of them


def uvicorn_config(application: Any = APPLICATION, **options: Any) -> uvicorn.Config:
    """Return the uvicorn configuration. `options` sets the address and the grace period.

    X-Forwarded-For and X-Forwarded-Proto are trusted only from the proxies in BERTH_TRUSTED_PROXIES, because
    pods on this machine can send these headers too.
    """
    ports = importlib.import_module("berth.server.asgi").hosts  # this import also loads the settings
    set_process_name("web")
    gc.set_threshold(NEW_OBJECTS)
    enable_connection_pooling(settings.BERTH_DATABASE_POOL)
    proxies: list[str] = settings.BERTH_TRUSTED_PROXIES
    http, websockets = protocol_classes(
        ConnectionCounter(settings.BERTH_CONNECTIONS_PER_ADDRESS, network_matcher(proxies)),
        lambda host: ports is not None and ports.parse_host(host) is not None,
    )
    return uvicorn.Config(
        application,
        http=http,
        ws=websockets,
        limit_concurrency=raise_connection_limit(),
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        access_log=False,
        log_config=None,  # Django's settings configure logging
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        **options,
    )


def enable_connection_pooling(size: int) -> None:
    """Share up to `size` database connections among this process's threads.

    Call this before any thread connects. With a size of 0, each thread has its own connection.
    """
    if size:
        database = connections.settings[DEFAULT_DB_ALIAS]
        database["OPTIONS"]["pool"] = {"min_size": 1, "max_size": size, "timeout": DATABASE_WAIT_SECONDS}
        database["CONN_MAX_AGE"] = 0  # pooled connections are returned after each request
        database["CONN_HEALTH_CHECKS"] = False  # a health check would cost one round trip per request
        connection_created.connect(replace_closed_connection)


def replace_closed_connection(connection: Any, **more: object) -> None:
    """Replace the connection if PostgreSQL has closed it, for example during a restart."""
    if not is_open(connection.connection):
        connection.close()  # the pool opens a new connection instead
        connection.connect()


def is_open(connection: psycopg.Connection[Any]) -> bool:
    """Return whether PostgreSQL has kept the connection open.

    Checking an idle connection takes no round trip.
    """
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        if poll.poll(0):  # PostgreSQL closed the connection or sent a message before closing it
            connection.execute("")
    except psycopg.OperationalError:
        return False
    return not connection.closed


def network_matcher(proxies: list[str]) -> Callable[[str], bool]:
    """Return a predicate that tests whether an address is in any of the networks."""
    networks = [ip_network(proxy) for proxy in proxies]

    @lru_cache(maxsize=1024)
    def contains(address: str) -> bool:
        try:
            return any(ip_address(address) in network for network in networks)
        except ValueError:  # a Unix socket has no address
            return False

    return contains


def raise_connection_limit() -> int:
    """Raise the soft limit on open files, and return the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        soft = 2**20
    return max(CONNECTIONS_MIN, soft - RESERVED_FILES)
