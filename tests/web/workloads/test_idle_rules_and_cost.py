"""Tests that pages show idle rules, warnings and workload costs, and that forms set idle rules."""

from dataclasses import asdict
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from berth.core.idle_rule import IdleRule
from pools.models import NodePool
from projects.models import IdleWarning, Project, Workload
from scheduler.models import Allocation
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}


def test_workload_page_shows_idle_rule_and_cost(cast: Cast, sign_in: SignIn) -> None:
    now = timezone.now()
    rule = asdict(IdleRule(action="suspend"))
    NodePool.objects.filter(pk=cast.pool.pk).update(idle_rule=rule, price_per_gpu_hour=Decimal("1.5"))
    row = make.workload(cast.vision, "train", phase="running", run=1, pool=cast.pool, gpu_milli_min=1000)
    pod = make.place(row, make.node(cast.pool), [0])
    Allocation.objects.filter(pod=pod).update(bound_at=now - timedelta(hours=2), released_at=now)
    dave, path = sign_in("dave"), f"/workloads/{row.pk}"
    text = dave.get(path).content.decode()
    assert "Idle rule" in text
    assert "rule of pool local" in text
    assert '<dt>Cost so far</dt><dd>3.00 <span class="unit">USD</span></dd>' in text
    assert "<dt>GPU-hours</dt><dd>2.0</dd>" in text
    assert "3.00 " in dave.get("/workloads?columns=cost").content.decode()
    export: Any = dave.get("/workloads?columns=cost&format=csv")
    exported = b"".join(export.streaming_content).decode()
    assert "Cost (USD)" in exported.splitlines()[0]
    assert ",3.00" in exported

    IdleWarning.objects.create(
        workload=row, run=1, since=now, at=now, suspend_at=now, rule=rule, message="Suspended soon."
    )
    assert "Suspended soon." in dave.get(path).content.decode()
    Workload.objects.filter(pk=row.pk).update(run=2)
    assert "Suspended soon." not in dave.get(path).content.decode()
    assert IdleRule().sentence[:30] in dave.get("/node-pools/local").content.decode()


def test_project_form_stores_valid_idle_rules_and_rejects_invalid_rules(cast: Cast, sign_in: SignIn) -> None:
    alice, path = sign_in("alice"), "/projects/vision/change"
    values = {"title": "", "rank": "0", "reclaim_min_runtime": "", "preempt_min_runtime": ""}
    rejected = alice.post(path, {**values, "idle_rule": "below=5%,atfer=1h"}, headers=HTMX)
    assert "Did you mean `after`?" in rejected.content.decode()
    alice.post(path, {**values, "idle_rule": "below=7%,action=suspend"}, headers=HTMX)
    assert Project.objects.get(name="vision").idle_rule["below"] == 7
    assert "below=7%,after=1h,action=suspend,grace=30m" in alice.get(path).content.decode()


def test_ended_workload_page_shows_how_long_it_ran(cast: Cast, sign_in: SignIn) -> None:
    began, ended = make.ago(minutes=90), make.ago(minutes=5)
    row = make.workload(cast.vision, "train", phase="completed", run=1, started_at=began, ended_at=ended)
    assert (
        "<dt>Duration</dt><dd>1 h 25 min</dd>" in sign_in("dave").get(f"/workloads/{row.pk}").content.decode()
    )


def test_running_workload_page_shows_when_it_reaches_its_maximum_runtime(cast: Cast, sign_in: SignIn) -> None:
    began = make.ago(hours=1)
    row = make.workload(cast.vision, "train", phase="running", run=1, started_at=began, max_runtime=7200)
    text = sign_in("dave").get(f"/workloads/{row.pk}").content.decode()
    assert (
        f'<dt>Max runtime</dt><dd>2 h, until <time datetime="{(began + timedelta(hours=2)).isoformat()}"'
        in text
    )
    header = text.partition('class="head-facts"')[2].partition("</p>")[0]
    assert f'reaches max runtime <time datetime="{(began + timedelta(hours=2)).isoformat()}"' in header
