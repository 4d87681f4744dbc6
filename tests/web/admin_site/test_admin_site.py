"""Tests for the admin site: access, read-only history and audit rows."""

import csv
import io
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from berth.core.errors import RateLimited
from berth.server.settings.admin_site import SECTIONS
from pools.models import NodePool
from projects.models import Audit, Delivery, Department, Membership, Quota, Workload
from projects.services.workloads.pending import smallest_change
from scheduler.engine.decide import decide
from scheduler.loop.engine_version import engine_version
from scheduler.loop.snapshots import compress_document
from scheduler.models import Eviction
from scheduler.reports.evictions.rendering import KIND_TITLES
from scheduler.simulator import load
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import streamed

# Inline scripts, except data blocks, and event handler attributes.
INLINE_SCRIPT = re.compile(
    r"<script(?![^>]*(?:\ssrc=|application/json))[^>]*>|<[^>]*\son\w+=[^>]*>", re.IGNORECASE
)
HISTORY = ("projects.event", "projects.audit", "scheduler.eviction", "scheduler.cycle", "pools.scalingevent")


admin.autodiscover()


@pytest.mark.heavy
def test_every_change_list_and_its_first_row_can_be_opened(
    admin_client: Client, running_workload: Workload
) -> None:
    ours = ("auth", "pools", "projects", "scheduler")
    for model in (model for model in admin.site._registry if model._meta.app_label in ours):
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        assert_runs_no_inline_script(admin_client.get(reverse(f"admin:{name}_changelist")))
        first = model._default_manager.first()
        if first is not None:
            assert_runs_no_inline_script(admin_client.get(reverse(f"admin:{name}_change", args=[first.pk])))


def test_admin_site_uses_the_applications_terms(admin_client: Client, running_workload: Workload) -> None:
    make.workload(running_workload.project, "late", reason="WaitingForCapacity")
    text = admin_client.get(reverse("admin:projects_workload_changelist")).content.decode()
    assert "Waiting for capacity" in text and "WaitingForCapacity" not in text
    for model, label, name in (
        ("projects_workload", "State", "Phase"),
        ("scheduler_eviction", "Node pool", "Pool name"),
        ("scheduler_cycle", "Time", "At"),
        ("projects_quota", "Can exceed quota", "Over quota"),
    ):
        heads = re.findall(
            r"<th[^>]*>(.*?)</th>",
            admin_client.get(reverse(f"admin:{model}_changelist")).content.decode(),
            re.DOTALL,
        )
        words = {re.sub(r"<[^>]*>|\s+", " ", head).strip() for head in heads}
        assert label in words and name not in words, (model, words)


def test_eviction_shows_its_kind_as_a_title(admin_client: Client, running_workload: Workload) -> None:
    row = Eviction.objects.get()
    text = admin_client.get(reverse("admin:scheduler_eviction_change", args=[row.pk])).content.decode()
    assert KIND_TITLES[row.kind] in text
    assert f"(&#x27;{row.kind}&#x27;" not in text


def test_admin_site_uses_the_applications_fonts(admin_client: Client) -> None:
    assert "/static/berth/css/fonts.css" in admin_client.get("/admin/").content.decode()


def assert_runs_no_inline_script(answer: HttpResponseBase) -> None:
    assert isinstance(answer, HttpResponse)
    assert answer.status_code == 200
    assert "script-src 'self' 'unsafe-eval';" in answer["Content-Security-Policy"]
    assert INLINE_SCRIPT.findall(answer.content.decode()) == []


@pytest.mark.heavy
def test_pending_workload_shows_its_smallest_change(admin_client: Client, cast: Cast) -> None:
    make.node(cast.pool, labels={"zone": "a"})
    make.quota(cast.vision, cast.pool, 0, over_quota=False)
    waiting = make.workload(cast.vision, "waits")
    text = admin_client.get(reverse("admin:projects_workload_change", args=[waiting.pk])).content.decode()
    assert "The workload would start now if project vision had a quota of 1 GPU instead of 0." in text


@pytest.mark.heavy
def test_rate_limited_smallest_change_search_shows_when_to_retry(
    admin_client: Client, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(workload: Workload) -> str:
        raise RateLimited(2, "Try again in 2 s.")

    monkeypatch.setattr(smallest_change, "_finders", [reject])
    waiting = make.workload(cast.vision, "waits")
    answer = admin_client.get(reverse("admin:projects_workload_change", args=[waiting.pk]))
    assert (answer.status_code, "Try again in 2 s." in answer.content.decode()) == (200, True)


def test_staff_user_without_a_platform_role_gets_403(cast: Cast, running_workload: Workload) -> None:
    user = cast.dave.user
    user.is_staff = True
    user.save()
    client = Client()
    client.force_login(user)
    assert client.get(reverse("admin:scheduler_eviction_changelist")).status_code == 403
    assert client.get(reverse("admin:projects_workload_changelist")).status_code == 403


def test_sidebar_links_to_every_registered_model(admin_client: Client) -> None:
    registered = {f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry}
    assert registered == {model for items in SECTIONS.values() for _, _, model in items}
    text = admin_client.get("/admin/").content.decode()
    assert all(reverse(f"admin:{model}_changelist") in text for model in registered)


def test_admin_index_lists_items_that_need_attention(
    admin_client: Client, running_workload: Workload
) -> None:
    text = admin_client.get("/admin/").content.decode()
    assert "Not running" in text and text.count("Needs attention") == 1
    assert "vision/train" in text and "ads/rank" in text
    row = Eviction.objects.get()
    assert reverse("admin:scheduler_eviction_change", args=[row.pk]) in text
    NodePool.objects.update(last_error="no credentials")
    assert "local: provider errors" in admin_client.get("/admin/").content.decode()


def test_index_hides_workloads_from_staff_users_without_a_platform_role(
    cast: Cast, running_workload: Workload
) -> None:
    user = cast.dave.user
    user.is_staff = True
    user.save()
    client = Client()
    client.force_login(user)
    answer = client.get("/admin/")
    assert answer.status_code == 403
    assert "vision/train" not in answer.content.decode()


@pytest.mark.heavy
def test_pool_form_offers_the_fake_provider_only_if_enabled_or_in_use(
    admin_client: Client, cast: Cast, settings: Any
) -> None:
    other = make.pool(name="real", provider="local", runtime="local")
    for turned_on in (True, False):
        settings.BERTH_FAKE_POOLS = "tests.fakes" if turned_on else ""
        for form in ("add", f"{other.pk}/change"):
            text = admin_client.get(f"/admin/pools/nodepool/{form}/").content.decode()
            assert 'value="static"' in text
            assert ('value="fake"' in text) is turned_on, form
    assert (
        'value="fake"' in admin_client.get(f"/admin/pools/nodepool/{cast.pool.pk}/change/").content.decode()
    )


def test_times_are_shown_to_the_second_in_the_users_time_zone(admin_client: Client, cast: Cast) -> None:
    work = make.workload(cast.vision, "train")
    make.eviction(work, None, cast.pool, at=datetime(2025, 7, 1, 22, 30, 7, tzinfo=UTC))
    address = reverse("admin:scheduler_eviction_changelist")
    assert "1 Jul 2025, 22:30:07" in admin_client.get(address).content.decode()
    admin_client.cookies["berth_zone"] = "Europe/Berlin"
    assert "2 Jul 2025, 00:30:07" in admin_client.get(address).content.decode()
    assert admin_client.get(f"{address}?at_from_0=2025-07-02").context["cl"].result_count == 1
    assert admin_client.get(f"{address}?at_to_0=2025-07-01&at_to_1=").context["cl"].result_count == 0
    assert admin_client.get(f"{address}?at_to_0=2025-13-99&at_to_1=x").context["cl"].result_count == 1


@pytest.mark.heavy
def test_cycle_page_lists_the_steps_of_its_plan(admin_client: Client) -> None:
    step = {
        "do": "stop",
        "workload": "vision/younger",
        "role": "worker",
        "index": 3,
        "node": "n-2",
        "devices": [1],
    }
    bundle = {"kind": "reclaim", "pool": "local", "workload": "ads/ranking", "steps": [step]}
    row = make.cycle(plan={"bundles": [bundle]})
    text = admin_client.get(reverse("admin:scheduler_cycle_change", args=[row.pk])).content.decode()
    for cell in ("Reclaim for ads/ranking", "Stop", "vision/younger", "worker 3", "n-2"):
        assert f">{cell}</td>" in text


@pytest.mark.parametrize("label", HISTORY)
def test_history_rows_cannot_be_added_changed_or_deleted(
    label: str, admin_client: Client, running_workload: Workload
) -> None:
    app, model = label.split(".")
    row = next(m for m in admin.site._registry if m._meta.label_lower == label)._default_manager.first()
    assert row is not None or label == "projects.audit"
    assert admin_client.get(reverse(f"admin:{app}_{model}_add")).status_code == 403
    if row is not None:
        assert (
            admin_client.post(
                reverse(f"admin:{app}_{model}_change", args=[row.pk]), {"rule": "x"}
            ).status_code
            == 403
        )
        assert (
            admin_client.post(
                reverse(f"admin:{app}_{model}_delete", args=[row.pk]), {"post": "yes"}
            ).status_code
            == 403
        )


@pytest.mark.heavy
def test_eviction_page_shows_the_rule_and_its_numbers(
    admin_client: Client, running_workload: Workload
) -> None:
    row = Eviction.objects.get()
    text = admin_client.get(reverse("admin:scheduler_eviction_change", args=[row.pk])).content.decode()
    assert row.rule in text
    for cell in ("Victim", "vision", "2.5", "0.500"):
        assert f">{cell}</td>" in text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind__exact=reclaim", 1), ("kind__exact=preempt", 0), ("pool_name__icontains=local", 1),
        ("project_name__icontains=ads", 0), ("preemptor_project_name__icontains=ads", 1),
        ("at_from_0=2001-01-01&at_from_1=00:00:00&at_to_0=2001-02-01&at_to_1=00:00:00", 0),
        ("q=rank", 1), ("q=nothing-like-it", 0),
    ],
)  # fmt: skip
def test_evictions_are_filtered_by_kind_pool_project_preemptor_time_and_text(
    query: str, expected: int, admin_client: Client, running_workload: Workload
) -> None:
    answer = admin_client.get(f"{reverse('admin:scheduler_eviction_changelist')}?{query}")
    assert answer.status_code == 200
    assert answer.context["cl"].result_count == expected


def test_selected_evictions_are_exported_as_csv(admin_client: Client, running_workload: Workload) -> None:
    row = Eviction.objects.get()
    form = {"action": "download", "_selected_action": [row.pk]}
    answer = admin_client.post(reverse("admin:scheduler_eviction_changelist"), form)
    lines = list(csv.DictReader(io.StringIO(streamed(answer).decode())))
    assert [line["workload_name"] for line in lines] == ["train"]
    assert lines[0]["preemptor_project"] == "ads"


@pytest.mark.heavy
def test_replay_action_compares_a_cycle_with_its_replay(admin_client: Client) -> None:
    train = {"name": "train", "project": "vision", "roles": [{"gpu": 1}]}
    snapshot = load(
        {
            "format": "berth.scenario/1",
            "nodes": [{"name": "n", "gpus": 2}],
            "departments": [{"name": "research"}],
            "projects": [{"name": "vision", "department": "research"}],
            "workloads": [train],
        }
    ).snapshot
    plan = decide(snapshot)
    same = make.cycle(snapshot=compress_document(snapshot, plan), engine=engine_version())
    other = make.cycle(snapshot=compress_document(snapshot, replace(plan, bundles=())), engine="0.1 abc")
    without_snapshot = make.cycle()
    expected = {
        same: "gives the same plan",
        other: "now only: start for train",
        without_snapshot: "is not stored",
    }
    for cycle, message in expected.items():
        page = admin_client.get(reverse("admin:scheduler_cycle_change", args=[cycle.pk])).content.decode()
        address = f"/admin/scheduler/cycle/{cycle.pk}/replay"
        assert address in page
        assert message in admin_client.get(f"{address}/", follow=True).content.decode()


def test_department_created_in_the_admin_site_is_audited(admin_client: Client) -> None:
    answer = admin_client.post(
        reverse("admin:projects_department_add"), {"name": "ops", "title": "", "rank": "0"}
    )
    assert answer.status_code == 302
    row = Audit.objects.get(object_type="department", object_name="ops")
    assert (row.actor, row.action) == ("alice", "create")


@pytest.mark.heavy
def test_quota_edit_in_the_admin_site_creates_a_new_version_and_audit_row(
    admin_client: Client, running_workload: Workload
) -> None:
    quota = Quota.objects.get()
    values = {"gpu": "3", "over_quota": "on", "weight_gpu": "1", "weight_cpu": "1", "weight_memory": "1"}
    answer = admin_client.post(reverse("admin:projects_quota_change", args=[quota.pk]), values)
    assert answer.status_code == 302
    quota.refresh_from_db()
    assert (quota.gpu_milli, quota.version) == (3000, 2)
    assert Audit.objects.get(object_type="quota").after == {"gpu": 3}


def test_invalid_quota_shows_an_error_and_is_not_stored(
    admin_client: Client, running_workload: Workload
) -> None:
    quota = Quota.objects.get()
    values = {
        "gpu": "9", "limit_gpu": "4", "over_quota": "on", "weight_gpu": "1", "weight_cpu": "1",
        "weight_memory": "1",
    }  # fmt: skip
    answer = admin_client.post(reverse("admin:projects_quota_change", args=[quota.pk]), values, follow=True)
    assert "exceeds its limit" in answer.content.decode()
    quota.refresh_from_db()
    assert quota.gpu_milli == 2000


def test_role_revoked_in_the_admin_site_is_audited(cast: Cast, admin_client: Client) -> None:
    row = Membership.objects.get(user=cast.dave.user)
    admin_client.post(reverse("admin:projects_membership_delete", args=[row.pk]), {"post": "yes"})
    assert not Membership.objects.filter(user=cast.dave.user).exists()
    assert Audit.objects.filter(object_type="membership", action="revoke", actor="alice").exists()


def test_department_with_projects_cannot_be_deleted(cast: Cast, admin_client: Client) -> None:
    address = reverse("admin:projects_department_delete", args=[cast.research.pk])
    admin_client.post(address, {"post": "yes"}, follow=True)
    assert Department.objects.filter(pk=cast.research.pk).exists()


def test_cancel_action_cancels_the_workload_and_is_audited(admin_client: Client, cast: Cast) -> None:
    waiting = make.workload(cast.vision, "wait")
    admin_client.post(
        reverse("admin:projects_workload_changelist"), {"action": "cancel", "_selected_action": [waiting.pk]}
    )
    waiting.refresh_from_db()
    assert waiting.phase == "cancelled"
    assert Audit.objects.filter(object_type="workload", actor="alice").exists()


def test_user_change_in_the_admin_site_is_audited(admin_client: Client, cast: Cast) -> None:
    person = cast.frank.user
    address = reverse("admin:auth_user_change", args=[person.pk])
    form = admin_client.get(address).context["adminform"].form
    values = {name: form.initial.get(name) or "" for name in ("username", "first_name", "last_name")}
    admin_client.post(address, {**values, "email": "new@example.org"})
    person.refresh_from_db()
    assert (person.email, person.is_active) == ("new@example.org", False)
    rows = Audit.objects.filter(object_type="user", object_id=str(person.pk)).order_by("pk")
    assert [(row.action, row.after) for row in rows] == [
        ("deactivate", {"revoked_tokens": 0, "ended_sessions": 0}),
        ("edit", {"email": "new@example.org"}),
    ]
    own = reverse("admin:auth_user_delete", args=[cast.alice.user.pk])
    page = admin_client.post(own, {"post": "yes"}, follow=True).content.decode()
    assert "You cannot delete your own account. Ask another platform admin." in page


def test_admin_site_rejection_names_the_rejected_action(admin_client: Client) -> None:
    answer = admin_client.get(reverse("admin:scheduler_cycle_add"))
    assert answer.status_code == 403
    assert "Berth itself writes these records" in answer.content.decode()


def test_webhook_secret_is_never_shown(admin_client: Client) -> None:
    row = Delivery.objects.create(
        at=timezone.now(), next_attempt_at=timezone.now(), kind="failed", channel="webhook",
        to="https://hooks.example.org/services/T0/swordfish", content={}, state="pending",
    )  # fmt: skip
    listing = reverse("admin:projects_delivery_changelist")
    one = reverse("admin:projects_delivery_change", args=[row.pk])
    exported = admin_client.post(listing, {"action": "download", "_selected_action": [row.pk]})
    for answer in (admin_client.get(listing), admin_client.get(one)):
        text = answer.content.decode()
        assert "https://hooks.example.org/" in text and "swordfish" not in text
    assert b"swordfish" not in streamed(exported)
