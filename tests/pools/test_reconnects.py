"""Test that long-lived threads read the pools again after the database server has restarted."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection, connections

from berth.core.clock import SystemClock
from pools.kubernetes.cluster import Clusters
from pools.selectors import ray_nodes
from pools.services.access.kubernetes import KubernetesAccess


def kubernetes_pools() -> object:
    return KubernetesAccess(Clusters(lambda: "test", now=SystemClock().now)).access_by_pool()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread
        thread.submit(connections.close_all).result()


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("read", [ray_nodes, kubernetes_pools])
def test_thread_reconnects_after_its_connection_was_lost(
    thread: ThreadPoolExecutor, read: Callable[[], object]
) -> None:
    before = thread.submit(read).result()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [thread.submit(backend).result()])
    with pytest.raises(OperationalError):
        thread.submit(read).result()
    assert thread.submit(read).result() == before
