"""Tests for the page of a pool with many nodes."""

import csv
import io
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pools.models import Node, NodePool
from scheduler.models import NodeUtilization
from scheduler.web.pools.node_table import PAGE_SIZE
from scheduler.web.pools.nodes import MAX_TILES
from tests.browser.data.pools.fleet import create_fleet
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


def node_names(text: str) -> list[str]:
    return re.findall(r'<th scope="row"><a class="plain-link" href="/nodes/[^"]*">([^<]*)<', text)


def page(client: Client, query: str = "") -> str:
    return client.get(f"/node-pools/fleet{query}").content.decode()


@pytest.mark.heavy
def test_heatmap_shows_all_nodes_and_the_table_is_paginated(cast: Cast, alice: Client) -> None:
    create_fleet(cast.vision, 200)
    text = page(alice)
    label = "200 nodes: 117 full, 15 more than half allocated, 19 up to half allocated, 43 free"
    assert f'aria-label="{label}, 2 cordoned, 2 draining, 2 pending"' in text
    assert node_names(text) == [f"fleet-{n}" for n in range(PAGE_SIZE)]
    second = alice.get(next_page(text)).content.decode()
    assert node_names(second) == [f"fleet-{n}" for n in range(PAGE_SIZE, 2 * PAGE_SIZE)]
    assert ">Previous<" in second and "51 to 100 of 200 rows" in second


def next_page(text: str) -> str:
    link = text.split(">Next<", 1)[0].rsplit('href="', 1)[1]
    return "/node-pools/fleet" + link.split('"', 1)[0].replace("&amp;", "&")


def test_node_row_shows_allocation_utilization_and_problem(cast: Cast, alice: Client) -> None:
    create_fleet(cast.vision, 60)
    lines = [re.sub(r"<[^>]*>|\s+", " ", line) for line in page(alice).split("<tr>")]
    cells = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if "fleet-" in line}
    assert cells["fleet-1"] == "Ready 8 of 8 95% 60 of 64 492.2 GiB 1 3 h"
    assert cells["fleet-24"] == "Ready 3 of 8 77% 60 of 64 492.2 GiB 1 3 h"
    assert cells["fleet-7"].endswith("1 3 h New driver")
    assert cells["fleet-11"] == "Booting 0 of 8 3 h Slow boot"
    assert cells["fleet-13"].endswith("Row of racks without cooling (ada)")
    assert cells["fleet-31"] == "Ready 0 of 8 64 of 64 500 GiB 0 3 h"


@pytest.mark.heavy
def test_node_table_is_filtered_by_name_problem_and_state(cast: Cast, alice: Client) -> None:
    create_fleet(cast.vision, 200)
    assert node_names(page(alice, "?nodes-search=LEET-11")) == [
        "fleet-11",
        *(f"fleet-{n}" for n in range(110, 120)),
    ]
    assert node_names(page(alice, "?nodes-search=cooling")) == ["fleet-13", "fleet-113"]
    assert node_names(page(alice, "?state=draining")) == ["fleet-7", "fleet-107"]
    assert "No nodes match" in page(alice, "?nodes-search=missing")
    for odd in ("?state=odd", "?nodes-cursor=odd", "?nodes-search=%00", "?nodes-sort=odd", "?finding=odd"):
        assert alice.get(f"/node-pools/fleet{odd}").status_code == 200


@pytest.mark.heavy
def test_table_is_sorted_by_every_column_and_exported(cast: Cast, alice: Client) -> None:
    create_fleet(cast.vision, 60)
    text = page(alice, "?nodes-sort=-utilization&state=ready")
    percentages = [int(number) for number in re.findall(r'label="Utilization">(\d+)%', text)]
    assert len(percentages) > 40 and percentages == sorted(percentages, reverse=True)
    assert node_names(page(alice, "?nodes-sort=-problem"))[0] == "fleet-11"
    assert node_names(page(alice, "?nodes-sort=gpus"))[0] in ("fleet-11", "fleet-31")
    for key in ("name", "state", "cpu", "-memory", "pods", "age"):
        assert len(node_names(page(alice, f"?nodes-sort={key}"))) == PAGE_SIZE
    answer = alice.get("/node-pools/fleet?nodes-format=csv&state=cordoned")
    rows = list(csv.DictReader(io.StringIO(streamed(answer).decode())))
    assert [(row["Node"], row["Allocated (GPUs)"], row["Utilization (%)"]) for row in rows] == [
        ("fleet-13", "8.0", "54.6")
    ]


def test_tenant_sees_no_provider_problems_and_cannot_select_nodes(
    cast: Cast, alice: Client, sign_in: SignIn
) -> None:
    create_fleet(cast.vision, 60)
    Node.objects.filter(name="fleet-11").update(not_ready_reason="quota 4711 exceeded")
    assert "quota 4711 exceeded" in page(alice).lower()
    tenant = page(sign_in("grace"))
    assert len(node_names(tenant)) == PAGE_SIZE
    assert "4711" not in tenant and 'form="bulk"' not in tenant and "Slow boots" not in tenant
    assert "fleet-train" not in tenant
    filtered = page(sign_in("grace"), "?finding=cordoned+nodes")
    assert len(node_names(filtered)) == PAGE_SIZE, "only platform admins filter by findings"


@pytest.mark.heavy
def test_diagnosis_links_to_the_affected_nodes_and_to_one_bulk_action(cast: Cast, alice: Client) -> None:
    create_fleet(cast.vision, 200)
    text = page(alice)
    diagnosis = text.partition("Diagnosis")[2].partition("</table>")[0]
    for label in ("Show 2 nodes", "Uncordon 2 nodes"):
        assert f">{label}</a>" in diagnosis
    assert 'href="/node-pools/fleet/nodes/uncordon?state=cordoned"' in diagnosis
    assert "berth node uncordon --pool fleet" in diagnosis
    shown = page(alice, "?finding=slow+boots")
    assert node_names(shown) == ["fleet-11", "fleet-111"]
    assert re.search(r'aria-current="true">Slow boots <span class="faint">2<', shown)


def test_small_pool_shows_tiles_with_measurements(cast: Cast, alice: Client) -> None:
    pool = create_fleet(cast.vision, 30)
    node = pool.nodes.get(ordinal=1)
    NodeUtilization.objects.create(node=node, at=timezone.now(), devices=[[870, 1024]] * 8)
    Node.objects.filter(ordinal__in=(3, 4)).update(state="cordoned")
    text = page(alice)
    assert text.count('<article class="node-card"') == 30
    assert text.count("87% used, 1 GiB") == 8
    filtered = page(alice, "?finding=cordoned+nodes")
    assert "3 of 30 nodes: cordoned nodes." in filtered
    assert filtered.count('<article class="node-card"') == 3


def test_query_count_does_not_grow_with_nodes(cast: Cast, alice: Client) -> None:
    counts = []
    create_fleet(cast.vision, 4 * MAX_TILES)
    for removed in (0, MAX_TILES):
        Node.objects.filter(ordinal__lt=removed).update(pool=cast.pool)
        with CaptureQueriesContext(connection) as queries:
            assert alice.get("/node-pools/fleet").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_node_counts_have_thousands_separators(cast: Cast, alice: Client) -> None:
    NodePool.objects.filter(pk=cast.pool.pk).update(nodes_min=1000, nodes_max=4000, nodes_desired=1500)
    page = alice.get(f"/node-pools/{cast.pool.name}").content.decode()
    assert "Elastic, 1,000 to 4,000 nodes, 1,500 desired" in page
    assert " to 4,000<" in alice.get("/node-pools").content.decode()
