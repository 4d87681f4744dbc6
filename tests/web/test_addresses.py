"""Tests for URLs that differ slightly from those of pages."""

from tests.web.conftest import SignIn


def test_address_with_a_trailing_slash_redirects_to_the_page(sign_in: SignIn) -> None:
    dave = sign_in("dave")
    assert dave.get("/workloads/?state=ended")["Location"] == "/workloads?state=ended"
    assert dave.get("/queue//")["Location"] == "/queue"
    for path in ("/nothing/", "/api/v1/workloads/"):
        assert dave.get(path).status_code == 404, path
    assert dave.post("/workloads/").status_code == 404
