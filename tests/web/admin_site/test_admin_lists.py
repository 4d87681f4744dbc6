"""Tests for the lists and forms of the admin site: words, formats and links."""

import json
import re
from datetime import timedelta

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django_q.models import Failure, OrmQ

from berth.server.web.numbers import NO_VALUE
from pools.models import NodePool
from projects.models import Audit, QuotaChange, Workload
from projects.services import arrays, quotas, tenants
from projects.services.notifications.subscriptions import subscribe
from tests import factories as make
from tests.cast import Cast

admin.autodiscover()


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def heading(html: str) -> str:
    return text_of(re.findall(r"<h1.*?</h1>", html, re.DOTALL)[0])


def rows(html: str) -> list[str]:
    return [text_of(row) for row in re.findall(r'<tr class="data-row.*?</tr>', html, re.DOTALL)]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("projects_quota", "Quotas and shares chevron_right Quotas"),
        ("auth_user", "Users and access chevron_right Users"),
        ("scheduler_eviction", "Decisions chevron_right Evictions"),
        ("django_q_failure", "Background tasks chevron_right Failed"),
    ],
)
@pytest.mark.every_case
def test_list_heading_matches_the_section_and_title_in_the_sidebar(
    admin_client: Client, model: str, path: str
) -> None:
    assert path in heading(admin_client.get(reverse(f"admin:{model}_changelist")).content.decode())


def test_project_page_heading_shows_the_section_the_list_and_the_project(
    admin_client: Client, cast: Cast
) -> None:
    address = reverse("admin:projects_project_change", args=[cast.vision.pk])
    title = heading(admin_client.get(address).content.decode())
    assert "Quotas and shares chevron_right Projects chevron_right vision" in title


def test_add_form_heading_names_the_kind_of_object(admin_client: Client) -> None:
    title = heading(admin_client.get(reverse("admin:projects_quota_add")).content.decode())
    assert "Quotas and shares chevron_right Quotas chevron_right Add quota" in title


def test_audit_list_describes_changes_like_the_activity_page(admin_client: Client, cast: Cast) -> None:
    quota = make.quota(cast.vision, cast.pool, 4)
    Audit.objects.create(
        actor="alice", action="set_quota", object_type="quota", object_id=str(quota.pk),
        object_name=str(quota), before={"gpu": 4}, after={"gpu": 8},
    )  # fmt: skip
    subscribe(actor=cast.alice, scope=cast.vision, to="dave@example.org", events=["failed"])
    address = reverse("admin:projects_audit_changelist")
    page = admin_client.get(address).content.decode()
    latest, earlier = rows(page)
    assert "Changed quota vision in pool local GPUs 4 → 8 alice" in earlier
    assert "Created notifications vision vision sent by email alice" in latest
    for raw in ("set_quota", "object_type", "subscription"):
        assert raw not in text_of(page), raw
    assert '<option value="set_quota">Set quota</option>' in page
    assert '<option value="quota">Quota</option>' in page
    filtered = admin_client.get(address, {"action": "set_quota", "object_type": "quota"})
    assert len(rows(filtered.content.decode())) == 1


def test_audit_list_query_count_does_not_grow_with_entries(admin_client: Client, cast: Cast) -> None:
    def query_count() -> int:
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(reverse("admin:projects_audit_changelist"))
        return len(queries)

    subscribe(actor=cast.alice, scope=cast.vision, to="dave@example.org", events=["failed"])
    few = query_count()
    for number in range(5):
        subscribe(actor=cast.alice, scope=cast.vision, to=f"dave-{number}@example.org", events=["failed"])
    assert query_count() == few


def test_audit_entry_preserves_the_line_breaks_of_a_value(admin_client: Client, cast: Cast) -> None:
    row = Audit.objects.create(
        actor="alice", action="set_template", object_type="template", object_id="1",
        object_name="vision/nightly", after={"document": "kind: training\nroles: []"},
    )  # fmt: skip
    page = admin_client.get(reverse("admin:projects_audit_change", args=[row.pk])).content.decode()
    assert '<td class="lines" data-label="After">kind: training\nroles: []</td>' in page
    assert f'<td class="whitespace-nowrap" data-label="Before">{NO_VALUE}</td>' in page
    assert f"Audit chevron_right Entry {row.pk}" in heading(page)


def test_user_list_shows_roles_and_marks_missing_permissions_with_dashes(
    admin_client: Client, cast: Cast
) -> None:
    page = admin_client.get(reverse("admin:auth_user_changelist")).content.decode()
    (dave,) = (row for row in rows(page) if " dave " in row)
    assert "member of vision" in dave
    assert dave.count("check ") == 1, "active, neither staff nor superuser"
    assert "close_small" not in page
    assert 'aria-label="No"' in page


def test_quota_list_shows_departments_and_formats_amounts_like_the_application(
    admin_client: Client, cast: Cast
) -> None:
    make.quota(cast.vision, cast.pool, 4)
    page = admin_client.get(reverse("admin:projects_quota_changelist")).content.decode()
    (quota,) = rows(page)
    assert "vision research local 4 ∞ 1 check 0 just now" in quota, "the rank is the project's"
    assert "Add quota" in page and 'placeholder="Department or project"' in page
    assert f'href="{reverse("quotas")}"' in page


def test_project_form_accepts_durations_with_units(admin_client: Client, cast: Cast) -> None:
    address = reverse("admin:projects_project_change", args=[cast.vision.pk])
    values = {"title": "", "rank": "0", "reclaim_min_runtime": "1 h 30 min", "preempt_min_runtime": ""}
    admin_client.post(address, values)
    cast.vision.refresh_from_db()
    assert (cast.vision.reclaim_min_runtime, cast.vision.preempt_min_runtime) == (5400, None)
    page = admin_client.get(address).content.decode()
    assert 'value="1 h 30 min"' in page
    assert f'href="{reverse("tenant", args=["projects", "vision"])}"' in page
    entries = Audit.objects.count()
    admin_client.post(address, values)
    assert Audit.objects.count() == entries, "the same duration is no change"
    page = admin_client.post(address, values | {"reclaim_min_runtime": "soon"}).content.decode()
    assert "Enter a duration, for example 90 s, 10 min or 1 h 30 min." in page


def test_project_settings_page_accepts_durations_with_units(cast: Cast) -> None:
    tenants.edit_project(actor=cast.alice, project=cast.vision, changes={"reclaim_min_runtime": 1800})
    client = Client()
    client.force_login(cast.alice.user)
    address = reverse("tenant", args=["projects", "vision"])
    assert 'value="30 min"' in client.get(address).content.decode()
    client.post(address, {"title": "", "rank": "0", "reclaim_min_runtime": "", "preempt_min_runtime": "2h"})
    cast.vision.refresh_from_db()
    assert (cast.vision.reclaim_min_runtime, cast.vision.preempt_min_runtime) == (None, 7200)


def test_user_form_links_to_the_password_form_and_hides_the_hash(admin_client: Client, cast: Cast) -> None:
    page = admin_client.get(reverse("admin:auth_user_change", args=[cast.dave.user.pk])).content.decode()
    assert reverse("admin:auth_user_password_change", args=[cast.dave.user.pk]) in page
    assert "algorithm" not in page and "salt" not in page
    assert "Deactivated users cannot sign in." in page
    assert "Save and add another" not in page


def test_pool_form_contains_every_setting_and_accepts_durations(admin_client: Client, cast: Cast) -> None:
    address = reverse("admin:pools_nodepool_change", args=[cast.pool.pk])
    answer = admin_client.get(address)
    shown = {name for _, options in answer.context["adminform"].fieldsets for name in options["fields"]}
    missing = {field.name for field in NodePool._meta.fields if field.editable and not field.auto_created}
    assert missing <= shown
    page = answer.content.decode()
    assert 'value="10 min"' in page, "the drain timeout"
    for title in ("Size", "Scheduling", "Fair share", "State"):
        assert f">{title}" in re.sub(r"\s+", "", page).replace("Fairshare", "Fair share"), title
    form = answer.context["adminform"].form
    values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    values = {name: value for name, value in values.items() if value is not False}
    values = {name: json.dumps(v) if isinstance(v, dict | list) else v for name, v in values.items()}
    posted = admin_client.post(address, values | {"drain_timeout": "15 min"})
    assert posted.status_code == 302, posted.context["adminform"].form.errors
    cast.pool.refresh_from_db()
    assert cast.pool.drain_timeout == 900


def test_quota_changes_are_described_with_their_values(admin_client: Client, cast: Cast) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    quotas.set_quota(
        actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 8}, expected_version=1
    )
    latest, _ = rows(admin_client.get(reverse("admin:projects_quotachange_changelist")).content.decode())
    assert "Quota of vision in pool local: GPUs 4 → 8" in latest
    change = QuotaChange.objects.latest("pk")
    page = admin_client.get(reverse("admin:projects_quotachange_change", args=[change.pk])).content.decode()
    assert '<td class="whitespace-nowrap" data-label="Before">4</td>' in page


def test_platform_admins_see_background_tasks_and_run_failed_tasks_again(admin_client: Client) -> None:
    at = timezone.now()
    failed = Failure.objects.create(
        id="a" * 32, name="lost-task", func="berth.tasks.gone", started=at - timedelta(seconds=65),
        stopped=at, success=False, result="the traceback", args=("swordfish",),
    )  # fmt: skip
    OrmQ.objects.all().delete()
    listing = reverse("admin:django_q_failure_changelist")
    assert "lost-task berth.tasks.gone" in rows(admin_client.get(listing).content.decode())[0]
    assert "1 min 5 s" in rows(admin_client.get(listing).content.decode())[0]
    page = admin_client.get(reverse("admin:django_q_failure_change", args=[failed.pk])).content.decode()
    assert "the traceback" in page and "swordfish" not in page, "arguments are not shown"
    for model in ("success", "schedule", "ormq"):
        assert admin_client.get(reverse(f"admin:django_q_{model}_changelist")).status_code == 200, model
    assert admin_client.get(reverse("admin:django_q_schedule_add")).status_code == 403
    admin_client.post(listing, {"action": "run_again", "_selected_action": [failed.pk]})
    assert not Failure.objects.exists()
    assert [task.func() for task in OrmQ.objects.all()] == ["berth.tasks.gone"]


def test_empty_list_differs_from_a_search_without_matches(admin_client: Client, cast: Cast) -> None:
    address = reverse("admin:projects_budget_changelist")
    assert "No budgets yet" in text_of(admin_client.get(address).content.decode())
    page = text_of(admin_client.get(address, {"q": "nothing-like-it"}).content.decode())
    assert "No budgets match your search and filters." in page and "Clear search and filters" in page


def test_workload_list_sorts_tasks_by_name_and_can_hide_them(admin_client: Client, cast: Cast) -> None:
    make.workload(cast.vision, "alone")
    document = {
        "name": "sweep", "project": "vision", "command": "true", "roles": [{"gpu": 1}], "array": {"tasks": 2}
    }  # fmt: skip
    arrays.submit(actor=cast.dave, document=document)
    address = reverse("admin:projects_workload_changelist")
    hidden = rows(admin_client.get(address, {"tasks": "hide"}).content.decode())
    only = rows(admin_client.get(address, {"tasks": "only"}).content.decode())
    assert [" alone " in row for row in hidden] == [True]
    assert [re.findall(r"sweep-\d", row)[0] for row in only] == ["sweep-0", "sweep-1"]


def test_workload_list_shows_short_times(admin_client: Client, running_workload: Workload) -> None:
    at = running_workload.submitted_at
    page = admin_client.get(reverse("admin:projects_workload_changelist")).content.decode()
    exact = timezone.localtime(at).strftime("%-d %b %Y, %H:%M:%S, UTC")
    assert f'<time datetime="{at.isoformat()}" title="{exact}">20 min ago</time>' in page


def test_eviction_filters_have_the_same_names_as_the_columns(admin_client: Client, cast: Cast) -> None:
    make.eviction(make.workload(cast.vision, "train"), make.workload(cast.ads, "next"), cast.pool)
    page = admin_client.get(reverse("admin:scheduler_eviction_changelist")).content.decode()
    titles = re.findall(r'<(?:h3|label)[^>]*class="[^"]*font-semibold[^"]*"[^>]*>([^<]+)</', page)
    for title in ("Kind", "Time", "Node pool", "Victim&#x27;s project", "Preemptor", "Entire workload"):
        assert title in [text.strip() for text in titles], title
    assert not re.search(r">\s*By [a-z]", page)
