"""Tests for page filters with names that do not exist."""

import pytest

from berth.core.problems import Problem
from berth.server.web.lists.filters import describe_unknown
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

PAGES = [
    (
        "/workloads?project=visoin",
        "The project &#x27;visoin&#x27; does not exist. Did you mean <code>vision</code>?",
    ),
    ("/workloads?pool=loca", "Did you mean <code>local</code>?"),
    ("/evictions?project=visoin", "Did you mean <code>vision</code>?"),
    ("/evictions?preemptor=visoin", "The preemptor project &#x27;visoin&#x27; does not exist."),
    ("/evictions?workload=trian", "Did you mean <code>train</code>?"),
    ("/decisions?pool=loca", "Did you mean <code>local</code>?"),
    ("/usage?project=visoin", "Did you mean <code>vision</code>?"),
    ("/templates?project=visoin", "Did you mean <code>vision</code>?"),
    ("/queue?pool=loca", "Did you mean <code>local</code>?"),
    ("/queue?project=visoin", "Did you mean <code>vision</code>?"),
    ("/fair-share?pool=loca", "Did you mean <code>local</code>?"),
    (
        "/queue?reason=Backof",
        "The reason &#x27;Backof&#x27; is not an allowed value. Did you mean <code>Backoff</code>?",
    ),
    ("/workloads?reason=Backof", "Did you mean <code>Backoff</code>?"),
    ("/activity?action=opn_shell", "Did you mean <code>open_shell</code>?"),
    ("/activity?kind=quotas", "Did you mean <code>quota</code>?"),
    ("/?pool=loca", "Did you mean <code>local</code>?"),
]


@pytest.mark.parametrize(("path", "expected"), PAGES)
def test_page_reports_an_unknown_name_in_a_filter(
    cast: Cast, sign_in: SignIn, path: str, expected: str
) -> None:
    make.workload(cast.vision, "train", by=cast.dave.user)
    text = sign_in("dave").get(path).content.decode()
    assert expected in text


def test_page_does_not_name_a_hidden_project(cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("dave").get("/workloads?project=speec").content.decode()
    assert "The project &#x27;speec&#x27; does not exist. Choose one of: vision." in text
    assert "speech" not in text


def test_unknown_workload_is_reported_in_a_sentence(cast: Cast, sign_in: SignIn) -> None:
    make.eviction(make.workload(cast.vision, "train"), make.workload(cast.ads, "next"), cast.pool)
    text = sign_in("alice").get("/evictions?workload=zzz").content.decode()
    assert "The workload &#x27;zzz&#x27; does not exist. Choose one of: next, train." in text
    hidden = Problem("workload", "does not exist", "'zzz'", "a workload that you can see")
    assert describe_unknown(hidden) == "There is no workload named 'zzz' that you can see."


@pytest.mark.parametrize("part", ["trai", "nex"])
def test_partial_name_excluded_by_another_filter_is_not_reported_as_unknown(
    cast: Cast, sign_in: SignIn, part: str
) -> None:
    make.eviction(make.workload(cast.vision, "train"), make.workload(cast.ads, "next"), cast.pool)
    text = sign_in("alice").get(f"/evictions?workload={part}&kind=drain").content.decode()
    assert "No evictions match these filters." in text
    assert "does not exist" not in text
