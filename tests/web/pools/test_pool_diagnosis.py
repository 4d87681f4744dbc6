"""Tests for the diagnosis on the pool page."""

import pytest
from django.utils import timezone

from scheduler.reports.pool_diagnosis import diagnose_pool
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


@pytest.mark.heavy
def test_pool_state_next_to_the_title_reflects_the_worst_finding(cast: Cast, sign_in: SignIn) -> None:
    pool = make.pool("train", ticked_at=make.ago(seconds=1))
    make.node(pool, 0)
    make.quota(cast.research, pool, 4)
    admin = sign_in("alice")

    def state(path: str) -> str:
        text = admin.get(path).content.decode().partition('<span class="chip ')[2]
        first, _, rest = text.partition("</span>")
        is_followed = rest.lstrip().startswith('<span class="chip')
        return f"{first}, {rest.partition('chip ')[2].partition('</span>')[0]}" if is_followed else first

    assert state("/node-pools/train") == 'good">Active'
    make.node(pool, 1, state="cordoned")
    assert state("/node-pools/train") == state("/node-pools?search=train") == 'good">Active, warn">1 warning'
    assert ">Cordoned nodes</span>" in admin.get("/node-pools").content.decode(), "the list names the warning"
    pool.ticked_at = make.ago(hours=1)
    pool.save()
    assert state("/node-pools/train") == state("/node-pools?search=train") == 'good">Active, bad">1 error'
    member = sign_in("dave").get("/node-pools/train").content.decode()
    assert 'chip good">Active<' in member, "only platform admins see the diagnosis"


@pytest.mark.heavy
def test_pool_at_its_ready_threshold_is_not_reported_as_waiting_for_nodes(cast: Cast) -> None:
    pool = make.pool("train", ready_threshold=2, ticked_at=make.ago(seconds=1))
    make.node(pool, 0)
    pool.operational_since = None
    pool.save()
    assert "ready threshold" in [finding.name for finding in diagnose_pool(pool, timezone.now())]
    make.node(pool, 1)
    pool.operational_since = None
    pool.save()
    assert "ready threshold" not in [finding.name for finding in diagnose_pool(pool, timezone.now())]
