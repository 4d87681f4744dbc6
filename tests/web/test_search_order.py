"""Tests for misspelt words and for the order of search results."""

from uuid import UUID

import pytest

from berth.server.web import nearest_words
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.test_search import HTMX, links, titles


def test_misspelt_words_find_the_nearest_pages_actions_and_objects(
    cast: Cast, rack7: None, sign_in: SignIn
) -> None:
    alice = sign_in("alice")
    assert "/quotas" in links(alice, "quta")
    assert "/node-pools" in links(alice, "nod pols")
    assert "rack7-train" in titles(alice, "rakc7-train")
    assert "Create schedule" in titles(alice, "craete schedul")
    text = alice.get("/search", {"q": "quta"}, headers=HTMX).content.decode()
    assert "Nothing matches “quta”. Showing results for “quota”." in text
    assert links(alice, "zzzzzz") == []
    assert "rack7-ranker" not in titles(sign_in("dave"), "rakc7-ranker"), "hidden names are not suggested"


def test_misspelt_words_find_the_latest_of_many_workloads(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_words, "NAMES_COMPARED", 1)
    make.workload(cast.vision, "brightness", id=UUID(int=1), submitted_at=make.ago(minutes=1))
    make.workload(cast.vision, "older", id=UUID(int=2), submitted_at=make.ago(hours=9))
    assert "brightness" in titles(sign_in("alice"), "brihgtness")


def test_name_matches_come_before_hidden_keywords(cast: Cast, sign_in: SignIn) -> None:
    boom = make.workload(cast.vision, "boom", phase="failed")
    alice = sign_in("alice")
    assert links(alice, "bo")[0] == f"/workloads/{boom.pk}"
    assert "/" not in links(alice, "bo"), "dashboard contains bo but does not start with it"
    assert links(alice, "dash")[0] == "/"


def test_workload_whose_name_begins_with_the_text_comes_before_newer_workloads_that_contain_it(
    cast: Cast, sign_in: SignIn
) -> None:
    first = make.workload(cast.vision, "grid-search", submitted_at=make.ago(hours=9))
    for number in range(9):
        make.workload(cast.vision, f"hypergrid-{number}")
    assert links(sign_in("alice"), "grid")[0] == f"/workloads/{first.pk}"
