"""Tests for why a workload stays pending after its restart delay, and for the smallest change card if no
change helps.
"""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

RESTART = "Restart delay until 2026-11-29 18:49:00 UTC, after 1 eviction."


def test_smallest_change_card_states_that_no_change_helps(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RenderedChange("no_change", "No single change would start the workload now.")
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)
    workload = make.workload(cast.vision, "train", phase="pending")
    card = sign_in("dave").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert answer.sentence in card and f'<a href="/workloads/{workload.pk}/edit">' not in card


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("requested", "minutes", "expected"),
    [
        (
            4,
            60,
            "Then waits for fair share: vision would have 16 GPUs, more than its fair share of 11 now.",
        ),
        (
            1,
            60,
            "Then waits for fair share: vision would have 13 GPUs, more than its fair share of 11 now.",
        ),
        (4, 2, ""),
    ],
)
def test_pages_show_why_a_workload_stays_pending_after_its_restart_delay(
    requested: int, minutes: int, expected: str, cast: Cast, sign_in: SignIn
) -> None:
    until = timezone.now() + timedelta(minutes=2)
    explanation = {
        "queue_position": 2, "pool": cast.pool.name,
        "blockers": [{"reason": "Backoff", "message": RESTART, "numbers": {}}],
        "expected_start": (timezone.now() + timedelta(minutes=minutes)).isoformat(),
    }  # fmt: skip
    make.queue_status(cast.vision, cast.pool, share=11, allocated=12, requested=4)
    workload = make.workload(
        cast.vision, "train", replicas=requested, reason="Backoff", message=RESTART, backoff_until=until,
        explanation=explanation, pools=[cast.pool.name],
    )  # fmt: skip
    client = sign_in("dave")
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    assert page.count('id="after-delay"') == bool(expected)
    assert expected in page
    assert ('id="change-title"' in page) is bool(expected), "a delay that only has to end needs no change"
    needed = '<td class="num deciding" data-label="Fair share">'
    assert (needed in page and f"{12 + requested} needed" in page) is bool(expected)
    rows = client.get("/workloads").content.decode()
    title = "Would exceed fair share" if expected else "Restart delay"
    assert f'<h2 id="why-title">{title}</h2>' in page, "the reason that applies longest"
    start, reason = page.find('id="start-conditions"'), page.find("The restart delay lasts until")
    assert -1 < reason < start
    assert page.count("<summary><span>Queue order:</span>") == page.count('id="ordering-key"')
    assert re.search(r"The restart delay lasts until <time[^>]*>[^<]*</time>, after 1 eviction\.", page)
    paths = (f"/workloads/{workload.pk}/timeline", "/queue")
    for text in (rows, *(client.get(path).content.decode() for path in paths)):
        assert title in text
        assert re.search("Restart delay.*?until <time[^>]*>[^<]*</time>", text, re.IGNORECASE | re.DOTALL)
        assert ("after the restart delay until <time" in text) is bool(expected)
    shown, other = ("WouldExceedFairShare", "Backoff")[:: 1 if expected else -1]
    assert client.get("/queue").context["reasons"] == [(shown, 1)], "counted under the reason in its row"
    assert [(each.reason, each.count) for each in client.get("/").context["reasons"]] == [(shown, 1)]
    for path in ("/queue", "/workloads"):
        assert f">{workload.name}<" in client.get(path, {"reason": shown}).content.decode()
        assert f">{workload.name}<" not in client.get(path, {"reason": other}).content.decode()


def test_restart_delay_is_not_shown_after_it_has_passed(cast: Cast, sign_in: SignIn) -> None:
    until = timezone.now() - timedelta(minutes=20)
    message = f"Restart delay until {until:%Y-%m-%d %H:%M:%S} UTC, after 1 eviction."
    explanation = {
        "queue_position": 2, "pool": cast.pool.name,
        "blockers": [{"reason": "Backoff", "message": message, "numbers": {}}],
        "expected_start": (until + timedelta(hours=1)).isoformat(),
    }  # fmt: skip
    make.queue_status(cast.vision, cast.pool, share=11, allocated=12, requested=4)
    workload = make.workload(
        cast.vision, "train", reason="Backoff", message=message, backoff_until=until,
        explanation=explanation, pools=[cast.pool.name],
    )  # fmt: skip
    client = sign_in("dave")
    assert "The restart delay ended <time" in client.get(f"/workloads/{workload.pk}").content.decode()
    tabs = (f"/workloads/{workload.pk}{tab}" for tab in ("", "/logs", "/timeline"))
    for path in ("/queue", "/workloads", *tabs):
        page = client.get(path).content.decode()
        text = re.sub("<[^>]+>", "", page)
        assert re.search(r"the restart delay (that )?ended \d{4}", text, re.IGNORECASE), path
        assert "Would exceed fair share" in text, path
        assert not re.search(r"until \d{4}|then waits", text, re.IGNORECASE), path
