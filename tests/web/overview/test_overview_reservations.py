"""Tests of quota bars, and of booting nodes and their reservations, on the overview."""

import re
from datetime import timedelta

from pools.models import Node
from projects.models import Quota, Workload
from scheduler.models import Reservation
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.conftest import SignIn


def test_overview_shows_which_project_a_booting_node_is_reserved_for(cast: Cast, sign_in: SignIn) -> None:
    make.node(cast.pool, gpus=4)
    booting = make.node(cast.pool, gpus=4, state="booting")
    following = make.workload(cast.vision, "next", replicas=4, phase="reserved", pool=cast.pool)
    Reservation.objects.bulk_create(
        Reservation(workload=following, role="worker", index=n, node=booting, devices=[n], gpu_milli=1000)
        for n in range(4)
    )
    text = sign_in("dave").get("/").content.decode()
    title = re.sub(r"<[^>]+>", "", text.partition('id="map-title">')[2].partition("</h2>")[0])
    assert "Devices 4 ready, 4 booting" in " ".join(title.split())
    assert text.count(f'<rect class="hue-{cast.vision.pk % 14} reserved"') == 4
    assert 'aria-label="GPU 0: booting, reserved for vision/next"' in text
    assert "booting, reserved for vision</span>" in text and "0 + 4 reserved</span>" in text
    legend = text.partition('id="map-title"')[2].partition('class="legend"')[2]
    assert f'class="hue-{cast.vision.pk % 14}"' in legend, "the colour of the reservation is explained"


def test_free_gpus_of_cordoned_nodes_are_counted_separately(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    nodes = ("", f"/node-pools/{cast.pool.name}")
    texts = [sign_in("alice").get(path or "/").content.decode() for path in nodes]
    assert not any("cordoned or draining" in text for text in texts)
    make.node(cast.pool, gpus=4, state="cordoned")
    overview, pool = (sign_in("alice").get(path or "/").content.decode() for path in nodes)
    assert "4 ready, 4 cordoned or draining" in overview
    assert "4 of them on cordoned or draining nodes" in overview
    assert "of 8, 4 of them on cordoned or draining nodes" in pool and "on ready nodes" not in pool
    following = make.workload(cast.vision, "next", phase="reserved", pool=cast.pool)
    node = running.pods.all()[0].node
    Reservation.objects.create(
        workload=following, role="worker", index=0, node=node, devices=[3], gpu_milli=1000
    )
    overview = sign_in("alice").get("/").content.decode()
    assert "4 of them on cordoned or draining nodes, and 1 reserved" in overview


def test_gpus_over_quota_in_a_pool_without_a_quota_are_shown(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    Quota.objects.all().delete()
    make.quota(cast.vision, make.pool("other"), 8)
    make.queue_status(cast.vision, cast.pool, share=2, allocated=2, requested=0)
    text = sign_in("alice").get("/").content.decode()
    queue = next(part for part in text.split('<div class="queue">') if ">vision</a>" in part)
    words = " ".join(re.sub(r"<[^>]+>", " ", queue).split())
    assert f"{running.gpu_milli_now // 1000} over quota" in words


def test_longest_wait_includes_requeued_workloads(cast: Cast, sign_in: SignIn) -> None:
    started = make.ago(minutes=50)
    for name, waited in (("short", 5), ("evicted", 10)):
        submitted = started - timedelta(minutes=waited)
        row = make.workload(cast.vision, name, pools=[cast.pool.name], submitted_at=submitted)
        Workload.objects.filter(pk=row.pk).update(first_started_at=started)
    text = sign_in("dave").get("/").content.decode()
    note = text.partition("Median wait (24&nbsp;h)")[2].partition('class="note"')[2].partition("</a>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", note).split())
    assert words.endswith("> 2 starts, longest 10 min") and "p95" not in words


def test_overview_shows_reserved_gpus_next_to_allocated_gpus_of_the_same_pools(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    Quota.objects.all().delete()
    make.quota(cast.vision, cast.pool, 3)
    following = make.workload(cast.vision, "next", replicas=2, phase="reserved", pool=cast.pool)
    node = present(Node.objects.first())
    Reservation.objects.bulk_create(
        Reservation(workload=following, role="worker", index=n, node=node, devices=[2 + n], gpu_milli=1000)
        for n in range(2)
    )
    card = sign_in("alice").get("/").content.decode().partition('id="queues-title"')[2]
    card = card.partition("</section>")[0]
    amount = next(part for part in card.split('<div class="queue">') if ">vision</a>" in part)
    words = " ".join(re.sub(r"<[^>]+>", " ", amount).split())
    assert "1 over quota 2 + 2 reserved of quota 3" in words and "unused" not in words
    assert {"reserved", "reserved-over"} <= set(re.findall(r'<i class="([\w-]+)"></i>', card))
