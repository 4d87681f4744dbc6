"""Tests for list filters by date whose values cannot be applied."""

import pytest

from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

PAGES = ("/evictions", "/decisions", "/activity", "/quotas/changes")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("since=2026-13-45", "since", "From is “2026-13-45”, which is not a date. Enter a date such as "),
        ("until=31.12.2026", "until", "To is “31.12.2026”, which is not a date."),
        ("since=2026-11-02&until=2026-11-01", "until", "From (2026-11-02) is after To (2026-11-01)."),
    ],
)
def test_invalid_date_is_explained_and_shows_no_rows(
    cast: Cast, sign_in: SignIn, path: str, query: str, field: str, message: str
) -> None:
    make.eviction(make.workload(cast.vision, "train"), make.workload(cast.ads, "next"), cast.pool)
    page = sign_in("alice").get(f"{path}?{query}").content.decode()
    assert message in page
    assert f'name="{field}" value="{query.rpartition("=")[2]}" aria-invalid="true"' in page
    assert "<tbody" not in page


@pytest.mark.parametrize("path", ["/evictions", "/activity", "/quotas/changes"])
def test_download_with_an_invalid_date_is_rejected(cast: Cast, sign_in: SignIn, path: str) -> None:
    assert sign_in("alice").get(f"{path}?since=2026-13-45&format=csv").status_code == 400


def test_unknown_period_is_explained_and_shows_no_rows(cast: Cast, sign_in: SignIn) -> None:
    make.eviction(make.workload(cast.vision, "train"), make.workload(cast.ads, "next"), cast.pool)
    page = sign_in("alice").get("/evictions?period=30d")
    assert page.context["rows"] == []
    assert "Period is “30d”. Allowed: all, 24h, 7d, custom." in page.content.decode()


def test_any_time_option_overrides_previously_chosen_dates(cast: Cast, sign_in: SignIn) -> None:
    make.eviction(make.workload(cast.vision, "train"), make.workload(cast.ads, "next"), cast.pool)
    page = sign_in("alice").get("/evictions?period=all&since=2099-01-01&until=soon")
    assert [row.victim.name for row in page.context["rows"]] == ["train"]
    for path in ("/evictions", "/decisions"):
        text = sign_in("alice").get(f"{path}?period=all&since=2099-01-01").content.decode()
        assert '<option value="all" selected>Any time</option>' in text


@pytest.mark.parametrize("path", ["/evictions", "/decisions"])
def test_any_time_option_does_not_count_as_a_filter(cast: Cast, sign_in: SignIn, path: str) -> None:
    alice = sign_in("alice")
    assert "No matches" not in alice.get(f"{path}?period=all&since=2099-01-01").content.decode()
    assert "No matches" in alice.get(f"{path}?since=2099-01-01").content.decode()
