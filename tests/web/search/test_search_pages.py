"""Tests that the search finds pages."""

from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.search.test_search import links, titles


def test_pages_are_found_by_synonyms(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    for words, path in (("users", "/access"), ("audit", "/activity"), ("jobs", "/workloads")):
        assert links(alice, words)[0] == path


def test_search_finds_pages_without_a_menu_entry(cast: Cast, sign_in: SignIn) -> None:
    pool = cast.pool.name
    alice, dave = sign_in("alice"), sign_in("dave")
    assert "/quotas/changes" in links(dave, "quota")
    assert links(dave, "quota changes") == ["/quotas/changes"]
    assert "/docs/" in links(dave, "documentation")
    assert links(dave, "scaling") == [f"/node-pools/{pool}?tab=history"]
    assert links(dave, f"capacity {pool}") == [f"/node-pools/{pool}?tab=capacity"]
    assert links(alice, f"settings {pool}") == [f"/node-pools/{pool}/settings"]
    assert links(dave, f"settings {pool}") == []
    assert "/account/password" in links(dave, "change password")
    for path in ("/quotas/changes", f"/node-pools/{pool}?tab=history", "/account/password"):
        assert dave.get(path).status_code == 200


def test_page_and_action_with_the_same_address_are_one_result(cast: Cast, sign_in: SignIn) -> None:
    for words in ("submit", ""):
        assert links(sign_in("dave"), words).count("/submit") == 1
    assert "Submit workload" in titles(sign_in("dave"), "submit")
