"""Tests that all pages count allocated and reserved GPUs in the same way."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from berth.server.web.charts.bars import quota_bar
from projects.models import Phase
from scheduler.models import QueueStatus, Reservation
from scheduler.reports.queues.queue_totals import totals_by_queue
from scheduler.web.pools.capacity import pool_capacity
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.fixture
def held(cast: Cast) -> None:
    """Allocate 2 GPUs to pods of vision, which has a quota of 4 GPUs, and reserve 3 more on the same node."""
    node = make.node(cast.pool, gpus=8)
    make.quota(cast.vision, cast.pool, 4)
    running = make.workload(cast.vision, "running", replicas=2, phase=Phase.RUNNING, pools=[cast.pool.name])
    for device in range(2):
        make.place(running, node, [device])
    waiting = make.workload(cast.vision, "waiting", replicas=3, phase=Phase.RESERVED, pools=[cast.pool.name])
    Reservation.objects.bulk_create(
        Reservation(workload=waiting, role="worker", index=n, node=node, devices=[2 + n], gpu_milli=1000)
        for n in range(3)
    )
    mine = totals_by_queue([cast.pool])[cast.pool.pk, (None, cast.vision.pk)]
    QueueStatus.objects.create(
        pool=cast.pool, project=cast.vision, share=[4000, 0, 0], requested=[5000, 0, 0], usage=[0, 0, 0],
        allocated=list(mine.allocated), reserved=list(mine.reserved), at=timezone.now(),
    )  # fmt: skip


def text_of(client: Client, path: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", client.get(path).content.decode()).split())


def test_department_totals_include_project_totals(cast: Cast, held: None) -> None:
    by_queue = totals_by_queue()
    project = by_queue[cast.pool.pk, (None, cast.vision.pk)]
    assert (project.allocated[0], project.reserved[0]) == (2000, 3000)
    assert by_queue[cast.pool.pk, (cast.research.pk, None)] == project
    assert totals_by_queue([]) == {}


def test_quota_and_fair_share_pages_show_the_gpus_of_booting_nodes(
    sign_in: SignIn, cast: Cast, held: None
) -> None:
    make.node(cast.pool, state="booting", gpus=4)
    client, pool = sign_in("alice"), cast.pool.name
    for path in (f"/quotas?pool={pool}", f"/fair-share?pool={pool}"):
        text = text_of(client, path)
        shared = "4 booting · 12 GPUs to share, including booting nodes"
        assert f"2 of 8 GPUs allocated · 3 reserved · {shared}" in text, path


@pytest.mark.heavy
def test_pages_show_allocated_and_reserved_gpus_separately(sign_in: SignIn, cast: Cast, held: None) -> None:
    client, pool = sign_in("alice"), cast.pool.name
    overview = text_of(client, "/")
    assert "vision 1 over quota 2 + 3 reserved of quota 4" in overview
    assert "3 reserved GPUs free 3 and 3 reserved" in overview
    quotas = text_of(client, f"/quotas?pool={pool}")
    assert "2 of 8 GPUs allocated · 3 reserved" in quotas
    assert "2 + 3 reserved 1 over quota" in quotas
    table = client.get(f"/quotas?pool={pool}").content.decode().split("<table")[1]
    heads, row = table.split("</thead>")[0], table[table.index(">vision</a>") :].split("</tr>")[0]
    assert heads.count("<th ") == 1 + row.count("<td")
    fair_share = text_of(client, f"/fair-share?pool={pool}")
    assert "2 of 8 GPUs allocated · 3 reserved" in fair_share
    page = client.get(f"/fair-share?pool={pool}").content.decode()
    cells = page[page.index(">vision</a>") :].split("</tr>")[0]
    values = dict(re.findall(r'data-label="(Allocated|Reserved|Over quota)">\s*([\d.]+)', cells))
    assert values == {"Allocated": "2", "Reserved": "3", "Over quota": "1"}
    assert "2 GPUs of 8 on ready nodes · 3 reserved Free 3 GPUs" in text_of(client, f"/node-pools/{pool}")


@pytest.mark.heavy
def test_reserved_gpus_reduce_free_gpus_only_after_evicted_pods_have_stopped(cast: Cast, held: None) -> None:
    capacity = pool_capacity([cast.pool])
    assert (capacity.reserved, capacity.free) == (3000, 3000)
    Reservation.objects.filter(index=0).update(devices=[0])  # a pod on this GPU still stops
    capacity = pool_capacity([cast.pool])
    assert (capacity.reserved, capacity.free) == (3000, 4000)


def test_bar_shows_which_reserved_gpus_are_over_quota() -> None:
    bar = quota_bar(allocated=4, reserved=8, quota=8, share=None, requested=0, scale=16, label="")
    assert [(part.kind, part.x, part.width) for part in bar.parts] == [
        ("used", 0, 250), ("reserved", 250, 250), ("reserved-over", 500, 250),
    ]  # fmt: skip
