"""Tests for the smallest change on the page of a pending workload."""

import html
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from berth.core.errors import RateLimited
from projects.models import Workload
from projects.services.workloads.submission import submit
from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn
from tests.web.queue.test_queue_page import submit_array


def test_pending_workload_page_loads_the_smallest_change(cast: Cast, sign_in: SignIn) -> None:
    make.node(cast.pool)
    make.quota(cast.vision, cast.pool, 0, over_quota=False)
    workload = make.workload(cast.vision, "train", phase="pending")
    client = sign_in("dave")
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    path = f"/workloads/{workload.pk}/smallest-change"
    assert f'hx-get="{path}"' in page
    assert "Searching…" in page
    card = client.get(path).content.decode()
    assert "Smallest change" in card
    assert "<strong>Give project vision a quota of 1 GPU instead of 0</strong>" in card
    assert "<dt>Starts</dt><dd>now</dd>" in card and "<dt>Evicts</dt>" not in card


def test_other_tenants_cannot_load_the_smallest_change(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", phase="pending")
    assert sign_in("grace").get(f"/workloads/{workload.pk}/smallest-change").status_code == 404


@pytest.mark.heavy
def test_running_workload_has_no_smallest_change(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", phase="running")
    client = sign_in("dave")
    assert client.get(f"/workloads/{workload.pk}/smallest-change").content == b""
    assert "Searching…" not in client.get(f"/workloads/{workload.pk}").content.decode()


def test_rate_limited_search_shows_when_to_retry(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: object, is_background: bool) -> None:
        raise RateLimited(2, "vision already has the maximum of 3 dry runs in progress. Try again in 2 s.")

    monkeypatch.setattr(pages, "find_smallest_change", reject)
    workload = make.workload(cast.vision, "train", phase="pending")
    client, url = sign_in("dave"), f"/workloads/{workload.pk}/smallest-change"
    assert "Try again in 2 s." in client.get(url).content.decode()
    refresh = client.get(url, headers={pages.REFRESH_HEADER: "1"})
    assert refresh.status_code == 204, "the page keeps the change that it shows"


def with_change(monkeypatch: pytest.MonkeyPatch, kind: str, **values: object) -> None:
    change = {
        "kind": kind,
        "subject": "",
        "resource": "",
        "pool": "",
        "before": None,
        "after": None,
        **values,
    }
    answer = RenderedChange("found", "The workload would start now if it changed.", change)
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)


def link_in(card: str) -> str:
    match = re.search(r'<a class="button" id="make-change" href="([^"]*)">', card)
    return html.unescape(match[1]) if match else ""


def test_smallest_change_states_what_evicted_workloads_would_lose(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = make.workload(
        cast.vision, "victim", phase="running", gpus=4, gpu_milli_now=4000, started_at=make.ago(hours=2)
    )
    workload = make.workload(cast.vision, "train", phase="pending", priority=50, gpus=4)
    answer = RenderedChange(
        "found", f"The workload would start now if it changed. This would evict {victim.handle}.",
        {"kind": "preemptible", "subject": "", "resource": "", "pool": "", "before": None, "after": None},
        evicted_workloads=3, affected=(victim.handle,), evicted=(victim.handle,),
        rule="in vision, priority 50 preempts priority 40", action="Make the workload preemptible",
        action_without_evictions="Request 1 worker replica instead of 4",
        change_without_evictions={
            "kind": "request_lowered", "subject": "worker", "resource": "devices", "pool": "", "before": 4,
            "after": 1,
        },
    )  # fmt: skip
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)
    card = sign_in("alice").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    alternative = card.partition("<dt>Alternative</dt>")[2].partition("</dd>")[0]
    assert "Request 1 worker replica instead of 4 <span" in alternative
    assert f'<a href="/workloads/{workload.pk}/edit?patch=' in alternative
    assert "<dt>Change</dt><dd><strong>Make the workload preemptible</strong></dd>" in card
    loss = 'loses 4\N{NO-BREAK SPACE}GPUs and 8.0\N{NO-BREAK SPACE}<span class="nowrap">GPU-h</span> of work'
    name = f'<a href="/workloads/{victim.pk}">vision/victim</a> <span class="soft">(same project)</span>'
    assert f'{name} <span class="sub warn">{loss}</span>' in card and "<div>2 other workloads</div>" in card
    assert '<dt>Rule</dt><dd class="soft">in vision, priority 50 preempts priority 40</dd>' in card
    assert 'class="button" id="make-change"' in card
    assert re.search("<dt>Starts</dt><dd>now with 4.GPUs</dd>", card) and "would start now" not in card
    workload.explanation = {"expected_start": make.ago(minutes=-30).isoformat()}
    workload.save()
    card = sign_in("alice").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert re.search('<dd>now with 4.GPUs, <span class="soft">instead of <time', card)
    monkeypatch.setattr(pages, "unevaluated_edit_time", lambda _: make.ago())
    card = sign_in("alice").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert "GPUs</dd>" in card, "the expected start is from before the edit"


def test_smallest_change_links_to_the_workload_to_end_and_shows_its_lost_work(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = make.workload(
        cast.vision, "ends", phase="running", gpu_milli_now=8000, started_at=make.ago(minutes=30)
    )
    change = {"kind": "workload_ended", "subject": "vision/ends", "resource": "", "pool": "local",
              "before": None, "after": None}  # fmt: skip
    answer = RenderedChange("found", "It would start.", change, action="End vision/ends")
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)
    workload = make.workload(cast.vision, "train", phase="pending")
    card = sign_in("dave").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert re.search(r"loses 8\s*GPUs and [\d.]+\s*GPU-h of work", re.sub(r"<[^>]*>", "", card))
    assert link_in(card) == f"/workloads/{ends.pk}" and ">Open vision/ends</a>" in card


def test_priority_suggestion_names_the_workload_it_would_overtake(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {"kind": "priority_raised", "subject": "", "resource": "", "pool": "", "before": 40, "after": 51}
    action = "Set the priority to 51 instead of 40"
    monkeypatch.setattr(
        pages,
        "find_smallest_change",
        lambda *_, **__: RenderedChange("found", "It would.", change, action=action),
    )
    make.workload(cast.vision, "ahead", priority=50)
    make.workload(cast.ads, "hidden", priority=50)
    workload = make.workload(cast.vision, "train", phase="pending", priority=40)
    card = sign_in("dave").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert "one above ahead, which has priority 50" in card and "hidden" not in card


def test_priority_suggestion_names_three_workloads_and_counts_the_others(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {"kind": "priority_raised", "subject": "", "resource": "", "pool": "", "before": 40, "after": 51}
    answer = RenderedChange("found", "It would.", change, action="Set the priority to 51 instead of 40")
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)
    array = submit_array(cast, "a-sweep", 5)
    Workload.objects.filter(array=array).update(priority=50)
    for name in ("ahead", *(f"other-{index}" for index in range(30))):
        make.workload(cast.vision, name, priority=50)
    workload = make.workload(cast.vision, "train", phase="pending", priority=40)
    with CaptureQueriesContext(connection) as statements:
        card = sign_in("dave").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert "one above a-sweep, ahead, other-0, 29 other workloads, which have priority 50" in card
    named = [each["sql"] for each in statements if '"priority" = 50' in each["sql"]]
    with connection.cursor() as cursor:
        for statement in named:
            cursor.execute(statement)
            assert len(cursor.fetchall()) <= 3
    assert len(named) == 2


@pytest.mark.parametrize(
    ("kind", "values", "changed"),
    [
        ("priority_raised", {"before": 50, "after": 60}, r"Priority 50 \(default\) → 60"),
        ("preemptible", {}, r"Preemptible [\w ]+ → \w+"),
        ("request_lowered", {"subject": "worker", "resource": "devices", "before": 4, "after": 2},
         "GPUs per pod 4 → 2"),
        ("request_lowered", {"subject": "worker", "resource": "replicas", "before": 2, "after": 1},
         "Replicas 2 → 1"),
        ("label_dropped", {"subject": "worker", "resource": "zone"}, r"node_selector|Node selector"),
        ("pool_allowed", {"subject": "spare"}, "Node pools .* → "),
        ("max_runtime_lowered", {"before": 3600, "after": 60}, "Max runtime 1h → 1m"),
    ],
)  # fmt: skip
def test_smallest_change_links_to_an_edit_form_that_contains_the_change(
    kind: str, values: dict[str, object], changed: str,
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    make.pool("spare")
    role = {"name": "worker", "replicas": 2, "gpu": 4, "node_selector": {"zone": "a"}}
    document = {
        **training("train", priority=50, max_runtime=3600, roles=[role]), "pools": [cast.pool.name],
    }  # fmt: skip
    workload = submit(actor=cast.dave, project=cast.vision, document=document)
    with_change(monkeypatch, kind, **values)
    client = sign_in("dave")
    link = link_in(client.get(f"/workloads/{workload.pk}/smallest-change").content.decode())
    assert link.startswith(f"/workloads/{workload.pk}/edit?")
    changes = client.get(link).content.decode().partition('id="changes">')[2].partition("</dl>")[0]
    assert re.search(changed, " ".join(re.sub(r"<[^>]+>", " ", changes).split()))
    workload.refresh_from_db()
    assert workload.priority == 50, "the change is not saved yet"


def nested(depth: int) -> str:
    return '{"env":' * depth + "1" + "}" * depth


LONG_ROLE = {"command": f"python -c '{'pass; ' * 1000}'"}
ROLE_WITH_VARIABLES = {"command": "true", "env": {"TOKEN": "s3cret"}}


@pytest.mark.every_case
@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("values", [LONG_ROLE, ROLE_WITH_VARIABLES], ids=["long", "variables"])
def test_link_to_the_edit_form_omits_a_change_that_must_not_be_in_a_url(
    values: dict[str, object], is_grouped: bool, cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Proxies reject long URLs and log short ones. The patch contains all roles.
    role = {"name": "worker", "replicas": 2, "gpu": 4, **values}
    roles = {"groups": [{"name": "all", "roles": [role]}]} if is_grouped else {"roles": [role]}
    document = training("train") | roles
    del document["command"]
    if is_grouped:
        del document["roles"]
    workload = submit(actor=cast.dave, project=cast.vision, document=document)
    with_change(monkeypatch, "request_lowered", subject="worker", resource="replicas", before=2, after=1)
    card = sign_in("dave").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert link_in(card) == f"/workloads/{workload.pk}/edit"
    assert "Edit workload" in card


def test_smallest_change_links_to_the_quota_only_for_users_who_may_set_it(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = make.workload(cast.vision, "train", phase="pending")
    with_change(monkeypatch, "quota_raised", subject="vision", pool=cast.pool.name, resource="gpu", after=2)
    path = f"/workloads/{workload.pk}/smallest-change"
    assert link_in(sign_in("alice").get(path).content.decode()) == f"/quotas/projects/vision/{cast.pool.name}"
    card = sign_in("dave").get(path).content.decode()
    assert link_in(card) == ""
    assert "bob can make this change." in card
    assert "can make this change" not in sign_in("alice").get(path).content.decode()


def test_member_sees_which_platform_admins_can_change_the_pool(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = make.workload(cast.vision, "train", phase="pending")
    with_change(monkeypatch, "nodes_added", pool=cast.pool.name, after=2)
    path = f"/workloads/{workload.pk}/smallest-change"
    assert "alice can make this change." in sign_in("dave").get(path).content.decode()
    assert "can make this change" not in sign_in("alice").get(path).content.decode()


def test_viewer_sees_the_smallest_change_without_a_button(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = make.workload(cast.vision, "train", phase="pending")
    with_change(monkeypatch, "priority_raised", before=50, after=60)
    card = sign_in("erin").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert "would start now if it changed" in card
    assert link_in(card) == ""


def test_start_after_a_restart_delay_is_stated_only_once(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    until, start = (timezone.now() + timedelta(minutes=minutes) for minutes in (5, 30))
    explanation = {"queue_position": 2, "pool": "local", "expected_start": start.isoformat()}
    workload = make.workload(
        cast.vision, "train", phase="pending", backoff_until=until, explanation=explanation
    )
    with_change(monkeypatch, "backoff_over", before=300, after=0)
    client = sign_in("dave")
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    head = re.sub(r"<time datetime=\"([^\"]+)\"[^>]*>[^<]*</time>", r"\1", page[page.index('class="lead') :])
    assert ">Queue position 2</a> in pool <a" in head
    assert f"Restart delayed until {until.isoformat()}.</span>" in head
    assert f"Expected start: <strong>{start.isoformat()} ({start.isoformat()})</strong>.</span>" in head
    assert client.get(f"/workloads/{workload.pk}/smallest-change").content == b""


@pytest.mark.parametrize(("reason", "is_searching"), [("Backoff", False), ("WaitingForCapacity", True)])
def test_page_shows_searching_unless_only_the_restart_delay_blocks_the_workload(
    reason: str, is_searching: bool, cast: Cast, sign_in: SignIn
) -> None:
    workload = make.workload(cast.vision, "train", phase="pending", reason=reason)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert ("Searching…" in page) is is_searching


@pytest.mark.parametrize("patch", ["[", "[1]", '"text"', "", *(nested(depth) for depth in (100, 350, 5000))])
def test_edit_form_ignores_an_invalid_patch(patch: str, cast: Cast, sign_in: SignIn) -> None:
    workload = submit(actor=cast.dave, project=cast.vision, document=training("train"))
    answer = sign_in("dave").get(f"/workloads/{workload.pk}/edit", {"patch": patch})
    assert "data-unchanged" in answer.content.decode()
