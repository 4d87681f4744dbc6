"""Tests for the provider of SSH hosts, without SSH servers."""

from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pools.models import Machine, MachineUse, NodePool, SshHost
from pools.providers.base import Instance
from tests.pools.ssh.ssh_pool import SshPool, create

pytestmark = pytest.mark.django_db
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBsRzAcUqV0cm+F3xcCPTpdPbYFiQJ6cZyHnkIyYVFTJ"


def test_statement_count_for_listing_instances_does_not_grow_with_hosts(
    tmp_path: Path,
) -> None:
    few, _ = listing(SshPool(tmp_path, create_pool("few", 2)))
    many, instances = listing(SshPool(tmp_path, create_pool("many", 20)))
    assert many == few
    assert len(instances) == 20
    assert all(each.shared and each.shared.labels == {"rack": "r1"} for each in instances)


def create_pool(name: str, hosts: int) -> NodePool:
    """Return a paused pool whose hosts have all joined and are in use."""
    entries = [
        {"name": f"{name}-{index}", "address": f"{name}-{index}.example.org", "host_key": KEY,
         "labels": {"rack": "r1"}}
        for index in range(hosts)
    ]  # fmt: skip
    pool = create(name, provider_settings={"hosts": entries})
    NodePool.objects.filter(pk=pool.pk).update(paused=True)
    for index, host in enumerate(SshHost.objects.filter(pool=pool)):
        host.machine = Machine.objects.create(
            pool=pool, name=host.name, cpu_milli=1000, memory_mib=1024, joined_at=timezone.now(),
            last_seen_at=timezone.now(),
        )  # fmt: skip
        host.save()
        MachineUse.objects.create(
            machine=host.machine, client_token="order", ordinal=index, began_at=timezone.now()
        )
    return pool


def listing(stage: SshPool) -> tuple[int, tuple[Instance, ...]]:
    with CaptureQueriesContext(connection) as statements:
        instances = stage.provider.list_instances(stage.pool.name)
    return len(statements), instances
