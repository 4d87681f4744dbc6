"""Tests for the diagnosis on the page of a node pool."""

from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


def test_pool_page_shows_the_diagnosis_to_platform_admins_only(cast: Cast, sign_in: SignIn) -> None:
    make.node(make.pool("train", paused=True, last_error="request 4711 failed"), state="cordoned")
    admin_page = sign_in("alice").get("/node-pools/train").content.decode()
    for text in (
        "Diagnosis",
        "The provider fake reports: request 4711 failed.",
        "train-0 is cordoned: 2 GPUs",
    ):
        assert text in admin_page
    for path in ("/nodes/train-0/uncordon", "/node-pools/train/resume", "/node-pools/train/settings"):
        assert (
            f'href="{path}" hx-get="{path}"' in admin_page.partition("Diagnosis")[2].partition("</table>")[0]
        )
    member_page = sign_in("dave").get("/node-pools/train").content.decode()
    assert "Diagnosis" not in member_page and "4711" not in member_page
