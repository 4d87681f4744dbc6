"""Tests for the search dialog: results of each kind, and nothing that the user may not see."""

import re

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}


@pytest.fixture
def objects(cast: Cast) -> None:
    make.node(cast.pool, name="rack7-node")
    make.workload(cast.vision, "rack7-train", phase="running")
    make.workload(cast.ads, "rack7-ranker")


def links(client: Client, words: str) -> list[str]:
    text = client.get("/search", {"q": words}, headers=HTMX).content.decode()
    return re.findall(r'href="([^"]+)"', text)


def titles(client: Client, words: str) -> set[str]:
    text = client.get("/search", {"q": words}, headers=HTMX).content.decode()
    return set(re.findall(r"<span>([^<]+)</span>", text))


def test_search_results_include_pages_objects_and_projects(
    cast: Cast, objects: None, sign_in: SignIn
) -> None:
    alice = sign_in("alice")
    assert titles(alice, "rack7") == {"rack7-node", "rack7-train", "rack7-ranker"}
    assert titles(alice, "RACK7 vision") == {"rack7-train"}
    assert "/fair-share" in links(alice, "fair")
    assert "/workloads?project=vision" in links(alice, "vision")
    assert f"/node-pools/{cast.pool.name}" in links(alice, cast.pool.name)
    assert "/" in links(alice, "") and "rack7-train" not in titles(alice, "")


def test_search_finds_only_objects_visible_to_the_user(cast: Cast, objects: None, sign_in: SignIn) -> None:
    assert titles(sign_in("dave"), "rack7") == {"rack7-node", "rack7-train"}
    assert Client().get("/search", {"q": "rack7"}, headers=HTMX).status_code == 401


@pytest.mark.parametrize("words", ["%", "_", "'\"><script>", "\0", "x " * 500, "\\", "☃"])
def test_unusual_search_text_causes_no_error(cast: Cast, sign_in: SignIn, words: str) -> None:
    answer = sign_in("alice").get("/search", {"q": words}, headers=HTMX)
    assert answer.status_code == 200
    assert "<script>" not in answer.content.decode()
    if words in ("%", "☃"):
        assert "No visible page, workload or other object matches" in answer.content.decode()


def test_search_query_count_is_independent_of_the_number_of_workloads(
    cast: Cast, sign_in: SignIn, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    alice = sign_in("alice")
    for number in range(20):
        make.workload(cast.vision, f"many-{number}")
    with django_assert_max_num_queries(16):
        assert len(titles(alice, "many")) == 6
