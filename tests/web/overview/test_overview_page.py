"""Tests for the overview: the links behind its numbers, and the order of its cards."""

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from berth.server.web.overview.utilization import utilization_chart
from pools.models import NodePool
from projects.models import Workload, WorkloadArray
from projects.services import arrays
from scheduler.reports.utilization.over_time import MeanGpus
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed, submit_array


def figure(client: Client, title: str) -> tuple[str, str]:
    text = client.get("/").content.decode()
    label = rf'<div class="label">{re.escape(title.replace("(24 h)", "(24&nbsp;h)"))}</div>'
    match = re.search(rf'<a class="figure" href="([^"]*)">{label}(.*?)</a>', text, re.DOTALL)
    assert match, title
    return match[1].replace("&amp;", "&"), re.sub(r"<[^>]+>", " ", match[2])


@pytest.mark.heavy
def test_every_number_links_to_the_rows_that_it_counts(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    make.workload(cast.vision, "never-started")
    make.workload(
        cast.vision, "long-ago", submitted_at=make.ago(hours=60), first_started_at=make.ago(hours=50)
    )
    for name, hours in (("broken", 1), ("older", 30)):
        make.workload(cast.vision, name, phase="failed", ended_at=make.ago(hours=hours))
    array = submit_array(cast, "grid", 2)
    Workload.objects.filter(array=array).update(phase="failed", ended_at=make.ago(hours=1))
    client = sign_in("dave")
    assert figure(client, "Failed (24 h)")[1].split() == ["1", "plus", "2", "tasks"]
    WorkloadArray.objects.filter(pk=array.pk).update(state="failed", ended_at=make.ago(hours=1))
    rows = client.get(figure(client, "Failed (24 h)")[0]).context["slice"].rows
    assert {row.array.name if row.array else row.name for row in rows} == {"broken", "grid"}
    for title, names in (
        ("GPUs allocated", ["baseline"]), ("Running", ["baseline"]), ("Median wait (24 h)", ["baseline"]),
        ("Pending", ["never-started", "long-ago"]),
    ):  # fmt: skip
        address, _ = figure(client, title)
        rows = client.get(address).context["slice"].rows
        assert sorted(row.name for row in rows) == sorted(names), title
    for title in ("GPUs free", "Evictions (24 h)"):
        assert client.get(figure(client, title)[0]).status_code == 200
    assert parse_qs(urlsplit(figure(client, "Median wait (24 h)")[0]).query)["sort"] == ["-wait"]


@pytest.mark.heavy
def test_devices_link_to_visible_workloads_only(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    pod = running.pods.all()[0]
    link = f'<a class="device" href="/workloads/{running.pk}" aria-label="GPU 0: vision/{pod.name}"'
    assert link in sign_in("dave").get("/").content.decode()
    assert f"/workloads/{running.pk}" not in sign_in("grace").get("/").content.decode()


def test_submit_button_is_shown_to_users_who_may_submit(cast: Cast, sign_in: SignIn) -> None:
    button = '<a class="button primary" href="/submit">'
    make.workload(cast.vision, "own", by=cast.dave.user)
    assert button in sign_in("dave").get("/").content.decode()
    assert button not in sign_in("erin").get("/").content.decode()


def test_allocated_gpus_bar_and_number_have_the_same_total(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    make.node(cast.pool, gpus=4, state="booting")
    client = sign_in("dave")
    assert figure(client, "GPUs allocated")[1].split()[:3] == ["2", "of", "4"]
    parts = client.get("/").context["capacity"].ready_bar.parts
    assert [(part.kind, part.width) for part in parts] == [("used", 500), ("track", 500)]


@pytest.mark.heavy
def test_gpu_counts_add_up_while_nodes_boot(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    booting = make.node(cast.pool, gpus=4, state="booting")
    client = sign_in("dave")
    assert figure(client, "GPUs allocated")[1].split() == ["2", "of", "4", "4", "ready,", "4", "booting"]
    assert figure(client, "GPUs free")[1].split() == ["2", "on", "ready", "nodes"]
    card = client.get("/").content.decode().partition('id="map-title"')[2].partition("</section>")[0]
    assert "4 ready, 4 booting" in card
    text = " ".join(re.sub(r"<[^>]+>", " ", card.partition('class="legend"')[2].partition(">")[2]).split())
    assert text == "booting 4 vision 2 free 2"
    assert card.count('class="device') - card.count('class="devices') == 8
    booting.delete()
    assert figure(client, "GPUs allocated")[1].split() == ["2", "of", "4"]
    assert "booting" not in client.get("/").content.decode()


def test_overview_lists_the_longest_pending_workloads_with_one_row_per_array(
    cast: Cast, sign_in: SignIn
) -> None:
    array = WorkloadArray.objects.create(
        project=cast.vision, name="sweep", submitted_by=cast.dave.user, spec={}, task_count=2
    )
    for index in range(2):
        make.workload(
            cast.vision, f"sweep-{index}", array=array, array_index=index, since=make.ago(hours=3),
            reason="Backoff",
        )  # fmt: skip
    for name, hours, reason in (
        ("older", 2, "Fragmented"),
        ("new", 1, ""),
        ("newer", 0.5, ""),
        ("never", 9, "Unschedulable"),
    ):
        make.workload(cast.vision, name, since=make.ago(hours=hours), reason=reason)
    card = sign_in("erin").get("/").content.decode().partition("Longest pending")[2].partition("</ul>")[0]
    assert re.findall(r">([a-z-]+)</a>", card) == ["sweep", "older", "new", "newer"]
    assert f'href="/arrays/{array.pk}"' in card and ">Restart delay<" in card


@pytest.mark.parametrize(("hours", "is_shown"), [(0.5, False), (3.5, True)])
def test_overview_of_a_new_installation_explains_when_utilization_will_be_shown(
    hours: float, is_shown: bool, cast: Cast, sign_in: SignIn
) -> None:
    node = make.node(cast.pool, gpus=4, created_at=make.ago(hours=hours), since=make.ago(hours=hours))
    NodePool.objects.update(created_at=make.ago(hours=hours))
    make.scaling(cast.pool, "ready", "ready", at=make.ago(hours=hours), node=node)
    page = sign_in("dave").get("/").content.decode()
    assert ('id="course-table"' in page) is is_shown
    assert ("once nodes have been ready for two hours" in page) is not is_shown


def test_overview_cards_have_the_same_order_for_all_pools(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    for index in range(6):
        make.workload(cast.vision, f"pending-{index}", by=cast.dave.user)
    make.node(make.pool("spare"), gpus=4)
    client = sign_in("dave")
    orders = {
        tuple(re.findall(r'<h2 id="([\w-]+)"', client.get(f"/{query}").content.decode()))
        for query in ("", "?pool=local", "?pool=spare")
    }
    assert len({tuple(each for each in order if each != "mine-title") for order in orders}) == 1


def test_pending_times_are_sorted_longest_first_and_exported(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    make.workload(
        cast.vision,
        "waited",
        submitted_at=make.ago(hours=3),
        first_started_at=make.ago(hours=1),
        phase="completed",
    )
    make.workload(cast.vision, "waiting")
    client = sign_in("dave")
    path = "/workloads?state=all&columns=state,wait&sort=-wait"
    assert [row.name for row in client.get(f"{path}&started=24h").context["slice"].rows] == [
        "waited",
        "baseline",
    ]
    assert [row.name for row in client.get(path).context["slice"].rows] == ["waited", "baseline", "waiting"]
    text = client.get(f"{path}&started=24h").content.decode()
    assert "2 h" in text and '<option value="24h" selected>Last 24 hours</option>' in text
    lines = streamed(client.get(f"{path}&format=csv")).decode().splitlines()
    head = lines[0].split(",")
    waits = [line.split(",")[head.index("Wait until start (s)")] for line in lines[1:]]
    assert waits == ["7200", "600", ""]


@pytest.mark.heavy
def test_list_sorted_by_pending_time_is_paginated(cast: Cast, sign_in: SignIn) -> None:
    for number in range(60):
        make.workload(
            cast.vision,
            f"w{number:02}",
            submitted_at=make.ago(hours=3),
            first_started_at=make.ago(minutes=179 - number),
        )
    client = sign_in("dave")
    path = "/workloads?state=all&started=24h&sort=-wait"
    first = client.get(path).context["slice"]
    with CaptureQueriesContext(connection) as statements:
        second = client.get(f"{path}&cursor={first.next}").context["slice"]
    names = [row.name for row in (*first.rows, *second.rows)]
    assert names == [f"w{number:02}" for number in reversed(range(60))]
    assert len(statements) <= 20


def test_overview_shows_evictions_first_to_users_who_cannot_submit(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    make.eviction(running, running, cast.pool, kind="reclaim")
    pages = {name: sign_in(name).get("/").content.decode() for name in ("erin", "dave")}
    first = {name: text.index("evicted-title") < text.index("queues-title") for name, text in pages.items()}
    assert first == {"erin": True, "dave": False}


def test_counts_by_pending_reason_add_up_to_the_number_of_pending_workloads(
    cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "waiting", reason="WaitingForCapacity", pools=[cast.pool.name])
    document = {
        "name": "sweep", "project": "vision", "command": "x", "pools": [cast.pool.name],
        "array": {"tasks": 3, "max_running": 1}, "roles": [{"name": "worker", "gpu": 1}],
    }  # fmt: skip
    arrays.submit(actor=cast.dave, document=document)
    Workload.objects.filter(array__isnull=False, held=False).update(phase="running")
    client = sign_in("dave")
    assert figure(client, "Pending")[1].split() == ["1", "plus", "parts", "of", "1", "array"]
    reasons = client.get("/").context["reasons"]
    assert [(reason.is_held, reason.count) for reason in reasons] == [(False, 1), (True, 1)]
    assert [reason.gpu_milli for reason in reasons] == [1000, 0]
    assert "Waiting for earlier tasks" in client.get("/").content.decode()


@pytest.mark.heavy
def test_workloads_with_reserved_resources_have_a_separate_pending_reason(
    cast: Cast, sign_in: SignIn
) -> None:
    for name, phase in (("waits", "pending"), ("starts-soon", "reserved")):
        values: Any = {"phase": phase, "reason": "WaitingForScaleUp", "pools": [cast.pool.name]}
        make.workload(cast.vision, name, **values)
    client = sign_in("dave")
    page = client.get("/")
    assert {each.reason: each.count for each in page.context["reasons"]} == {
        "WaitingForScaleUp": 1, "Reserved": 1,
    }  # fmt: skip
    for reason, name in (("WaitingForScaleUp", "waits"), ("Reserved", "starts-soon")):
        assert f'href="/workloads?reason={reason}"' in page.content.decode()
        rows = client.get("/workloads", {"reason": reason}).context["slice"].rows
        assert [row.name for row in rows] == [name]
        assert (reason, 1) in client.get("/queue").context["reasons"]
        assert [row[0].name for row in client.get("/queue", {"reason": reason}).context["rows"]] == [name]


@pytest.mark.heavy
def test_pools_with_many_devices_are_shown_as_bars(
    cast: Cast, sign_in: SignIn, running: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = sign_in("dave")
    assert "GPUs by pool" not in client.get("/").content.decode()
    monkeypatch.setattr("berth.server.web.overview.page.DEVICES_MAX", 3)
    text = client.get("/").content.decode()
    assert "GPUs by pool" in text
    ((pool, gpus),) = client.get("/").context["pool_bars"]
    assert (pool, gpus.allocated, gpus.free) == (cast.pool, 2000, 2000)


def test_utilization_chart_has_axis_labels_in_whole_gpus() -> None:
    at = make.ago(hours=1)
    chart = utilization_chart([MeanGpus(at, total=0.5, allocated=0.2, measured=0.0, used=0.0)])
    assert [mark for _, mark in chart.columns.marks] == ["1", "0"]


def test_utilization_chart_ends_at_the_largest_number_of_gpus() -> None:
    at = make.ago(hours=1)
    chart = utilization_chart([MeanGpus(at, total=2.0000000001, allocated=0.3, measured=0.1, used=0.0)])
    assert [mark for _, mark in chart.columns.marks] == ["2", "1", "0"], "rounding errors add no grid line"


def test_free_gpus_are_split_by_pool(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    client = sign_in("alice")
    assert figure(client, "GPUs free")[1].split() == ["2"], "there is only one pool"
    spare = make.pool("spare")
    assert figure(client, "GPUs free")[1].split() == ["2", "all", "in", cast.pool.name]
    make.node(spare, gpus=8)
    words = " ".join(figure(client, "GPUs free")[1].split())
    assert words == f"10 spare 8, {cast.pool.name} 2", "the largest pool comes first"
    for number in range(3):
        make.node(make.pool(f"small-{number}"), gpus=1)
    words = " ".join(figure(client, "GPUs free")[1].split())
    assert words == f"13 spare 8, {cast.pool.name} 2, small-0 1, 2 other pools 2"


def test_pending_reasons_are_ordered_by_gpu_count(cast: Cast, sign_in: SignIn) -> None:
    for name, replicas, reason in (
        ("a", 1, "OverQuota"), ("b", 1, "OverQuota"), ("c", 8, "WaitingForCapacity"), ("d", 4, "Backoff"),
    ):  # fmt: skip
        make.workload(cast.vision, name, replicas=replicas, reason=reason, pools=[cast.pool.name])
    reasons = sign_in("dave").get("/").context["reasons"]
    assert [each.reason for each in reasons] == ["WaitingForCapacity", "Backoff", "OverQuota"]


def test_device_map_marks_idle_devices_and_devices_of_the_same_workload(
    cast: Cast, sign_in: SignIn, running: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = sign_in("dave").get("/").content.decode()
    assert page.count(f'data-lit="{running.pk}"') == 2 and 'class="idle"' not in page
    assert "data-lit" not in sign_in("grace").get("/").content.decode(), "the workload is hidden from grace"
    monkeypatch.setattr(
        "scheduler.web.pools.devices.idle_since", lambda rows, now: dict.fromkeys(rows, make.ago(hours=1))
    )
    page = sign_in("dave").get("/").content.decode()
    assert page.count('<i class="idle"></i>') == 3, "two devices and the legend"
    assert re.search(r'aria-label="GPU 0: [^"]+, idle"', page)


def test_figures_of_members_name_their_scope(cast: Cast, sign_in: SignIn) -> None:
    page = sign_in("dave").get("/").content.decode()
    figures = page[page.index("overview-figures") :]
    parts = ("All projects", "GPUs allocated", "GPUs free", "My projects", "Running", "Median wait")
    places = [figures.index(f">{part}") for part in parts]
    assert places == sorted(places)
    assert "My projects" not in sign_in("alice").get("/").content.decode()
