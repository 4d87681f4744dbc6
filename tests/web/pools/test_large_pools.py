"""Tests for the page of a pool with many nodes."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pools.models import Node, NodePool
from scheduler.web.pools.nodes import MAX_UNPAGED_NODES, PAGE_SIZE
from tests.browser.data.fleet import create_fleet
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


def node_names(text: str) -> list[str]:
    return re.findall(r"<header><h3><a [^>]*>([^<]*)<", text)


def test_heatmap_shows_all_nodes_and_the_node_list_is_paginated(cast: Cast, alice: Client) -> None:
    create_fleet(cast.vision, 200)
    text = alice.get("/node-pools/fleet").content.decode()
    label = "200 nodes: 117 full, 15 more than half allocated, 19 up to half allocated, 43 free"
    assert f'aria-label="{label}, 2 cordoned, 2 draining, 2 pending"' in text
    assert node_names(text) == [f"fleet-{n}" for n in range(PAGE_SIZE)]
    second = alice.get(next_page(text)).content.decode()
    assert node_names(second) == [f"fleet-{n}" for n in range(PAGE_SIZE, 2 * PAGE_SIZE)]
    assert ">Previous<" in second


def next_page(text: str) -> str:
    link = text.split(">Next<", 1)[0].rsplit('href="', 1)[1]
    return "/node-pools/fleet" + link.split("#", 1)[0].replace("&amp;", "&")


@pytest.mark.heavy
def test_nodes_are_filtered_by_name_and_state(cast: Cast, alice: Client) -> None:
    create_fleet(cast.vision, 200)
    by_name = alice.get("/node-pools/fleet?find=LEET-11").content.decode()
    assert node_names(by_name) == ["fleet-11", *(f"fleet-{n}" for n in range(110, 120))]
    draining = alice.get("/node-pools/fleet?state=draining").content.decode()
    assert node_names(draining) == ["fleet-7", "fleet-107"]
    assert "No nodes match" in alice.get("/node-pools/fleet?find=missing").content.decode()
    for odd in ("?state=odd", "?nodes=odd", "?find=%00"):
        assert alice.get(f"/node-pools/fleet{odd}").status_code == 200


def test_query_count_does_not_grow_with_nodes(cast: Cast, alice: Client) -> None:
    counts = []
    create_fleet(cast.vision, 2 * MAX_UNPAGED_NODES)
    for removed in (0, MAX_UNPAGED_NODES // 2):
        Node.objects.filter(ordinal__lt=removed).update(pool=cast.pool)
        with CaptureQueriesContext(connection) as queries:
            assert alice.get("/node-pools/fleet").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_numbers_of_nodes_have_thousands_separators(cast: Cast, alice: Client) -> None:
    NodePool.objects.filter(pk=cast.pool.pk).update(nodes_min=1000, nodes_max=4000, nodes_desired=1500)
    page = alice.get(f"/node-pools/{cast.pool.name}").content.decode()
    assert "Elastic, 1,000 to 4,000 nodes, 1,500 desired" in page
    assert ">4,000<" in alice.get("/node-pools").content.decode()
