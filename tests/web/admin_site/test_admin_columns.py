"""Tests for the columns of the admin site's lists, their CSV files and the project form."""

import csv
import io
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.contrib import admin
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from pools.models import QuotaGroup
from projects.models import Audit, Event, Quota, Workload
from projects.services import quotas, tenants
from tests.cast import Cast
from tests.web.admin_site.test_admin_lists import rows, text_of
from tests.web.conftest import streamed

admin.autodiscover()

SORTED = re.compile(r'<th[^>]* sorted (\w+) [^>]*>.*?<a href="[^"]*">\s*(.*?)\s*</a>', re.DOTALL)


def listing(client: Client, model: str, query: str = "") -> str:
    return client.get(reverse(f"admin:{model}_changelist") + query).content.decode()


def headings(page: str) -> list[str]:
    head = page[page.index("<thead") : page.index("</thead>")]
    titles = [text_of(each).strip() for each in re.findall(r"<th.*?</th>", head, re.DOTALL)]
    return [re.sub(r" arrow\w+.*", "", title) for title in titles[1:]]


def downloaded(client: Client, model: str, query: str = "") -> list[dict[str, str]]:
    answer = client.get(reverse(f"admin:{model}_download") + query)
    return list(csv.DictReader(io.StringIO(streamed(answer).decode())))


def test_audit_list_shows_time_action_object_and_user_in_separate_columns(
    admin_client: Client, cast: Cast
) -> None:
    alice = replace(cast.alice, request_id="4f2c9a")
    quota = quotas.set_quota(actor=alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    page = listing(admin_client, "projects_audit")
    assert headings(page) == ["Time", "Action", "Object", "Project", "Details", "User", "Request ID"]
    assert SORTED.findall(page) == [("descending", "Time")], "the newest change is first"
    (row,) = rows(page)
    assert "Created quota vision in pool local vision 4 GPUs alice 4f2c9a" in row
    assert re.search(r'<th class="field-action_title[^>]*><a href="/admin/projects/audit/\d+/change/', page)
    for model, key in (("projects_quota", quota.pk), ("projects_project", cast.vision.pk)):
        assert f'<a href="{reverse(f"admin:{model}_change", args=[key])}">vision' in page, model


def test_audit_list_shows_roles_and_deleted_objects_without_links(admin_client: Client, cast: Cast) -> None:
    department = tenants.create_department(actor=cast.alice, name="ops", title="")
    tenants.delete_department(actor=cast.alice, department=department)
    page = listing(admin_client, "projects_audit")
    deleted, created = rows(page)
    assert "Deleted department ops" in deleted and "Created department ops" in created
    assert ">ops</a>" not in page


def test_prune_entry_in_the_audit_log_has_no_link(admin_client: Client, cast: Cast) -> None:
    Event.objects.create(kind="Submitted", subject="old", at=datetime(2026, 1, 2, tzinfo=UTC))
    call_command("prune", "--before=2026-01-10", "--yes", stdout=io.StringIO())
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    entry = Audit.objects.get(action="prune")
    page = listing(admin_client, "projects_audit")
    changed, pruned = rows(page)
    assert "Created quota vision" in changed and "Deleted old rows" in pruned and "history" in pruned
    assert f'<a href="{reverse("admin:projects_project_change", args=[cast.vision.pk])}">vision' in page
    assert ">history</a>" not in page, "the history is no object with a page"
    answer = admin_client.get(reverse("admin:projects_audit_change", args=[entry.pk]))
    assert answer.status_code == 200
    assert "2026-01-10" in answer.content.decode() and ">history</a>" not in answer.content.decode()
    assert [row["action"] for row in downloaded(admin_client, "projects_audit")] == ["set_quota", "prune"]


def test_csv_file_contains_the_rows_that_match_the_search(admin_client: Client, cast: Cast) -> None:
    for project, gpus in ((cast.vision, 2), (cast.speech, 3)):
        quotas.set_quota(actor=cast.alice, owner=project, pool=cast.pool, values={"gpu": gpus})
    page = listing(admin_client, "projects_quota", "?q=speech")
    assert f'href="{reverse("admin:projects_quota_download")}?q=speech" download' in page
    assert [row["owner"] for row in downloaded(admin_client, "projects_quota", "?q=speech")] == ["speech"]
    assert len(downloaded(admin_client, "projects_quota")) == 2
    assert [row["object_name"] for row in downloaded(admin_client, "projects_audit", "?q=vision")] == [
        "vision in pool local"
    ]


def test_csv_files_contain_no_passwords_or_digests(admin_client: Client, cast: Cast) -> None:
    for model in (model for model in admin.site._registry if model._meta.app_label != "django_q"):
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        answer = admin_client.get(reverse(f"admin:{name}_download"))
        assert answer.status_code == 200, name
        head = streamed(answer).decode().splitlines()[0].split(",")
        assert not {"password", "digest", "sealed", "provider_settings"} & set(head), name
        assert head != [""], name
    assert {row["username"] for row in downloaded(admin_client, "auth_user")} >= {"alice", "dave"}


def test_staff_user_without_a_platform_role_cannot_download_a_list(cast: Cast) -> None:
    user = cast.dave.user
    user.is_staff = True
    user.save()
    client = Client()
    client.force_login(user)
    assert client.get(reverse("admin:projects_audit_download")).status_code == 403


def test_list_hides_columns_without_values(admin_client: Client, running_workload: Workload) -> None:
    page = listing(admin_client, "projects_quota")
    assert "Group" not in headings(page)
    assert {"GPU quota", "Rank", "Can exceed quota"} <= set(headings(page))
    assert "Ended" not in headings(listing(admin_client, "pools_node"))
    Quota.objects.update(pool=None, group=QuotaGroup.objects.create(name="west"))
    assert "Group" in headings(listing(admin_client, "projects_quota"))


def test_quota_list_distinguishes_departments_from_projects(admin_client: Client, cast: Cast) -> None:
    for owner in (cast.research, cast.vision):
        quotas.set_quota(actor=cast.alice, owner=owner, pool=cast.pool, values={"gpu": 4})
    page = listing(admin_client, "projects_quota")
    classes = re.findall(r'<tr class="data-row[^"]*?(group|child)?">', page)
    assert classes == ["group", "child"], "the department is first"


def test_user_list_shows_never_for_users_who_have_not_signed_in(admin_client: Client, cast: Cast) -> None:
    cast.dave.user.last_login = None
    cast.dave.user.save()
    page = listing(admin_client, "auth_user")
    assert {"Admin site", "All rights", "Last sign-in"} <= set(headings(page))
    (dave,) = (row for row in rows(page) if " dave " in row)
    assert dave.strip().endswith("never")


@pytest.mark.parametrize(
    ("department", "pool", "expected"),
    [
        (300, 0, "inherits 5 min from department research"),
        (None, 600, "inherits 10 min from the node pools"),
        (None, 0, "inherits 0 s from the node pools"),
    ],
)
@pytest.mark.every_case
def test_project_forms_show_the_inherited_minimum_runtime(
    department: int | None, pool: int, expected: str, admin_client: Client, cast: Cast
) -> None:
    cast.research.reclaim_min_runtime = department
    cast.research.save()
    cast.pool.reclaim_min_runtime = pool
    cast.pool.save()
    client = Client()
    client.force_login(cast.alice.user)
    for page in (
        admin_client.get(reverse("admin:projects_project_change", args=[cast.vision.pk])),
        client.get(reverse("tenant", args=["projects", "vision"])),
    ):
        text = page.content.decode().replace("\N{NO-BREAK SPACE}", " ")
        assert f"An empty field {expected}." in text
        assert f'placeholder="{expected.split(" from ", maxsplit=1)[0]}"' in text


def test_project_form_explains_its_fields(admin_client: Client, cast: Cast) -> None:
    page = text_of(
        admin_client.get(reverse("admin:projects_project_change", args=[cast.vision.pk])).content.decode()
    )
    assert "Min runtime before reclaim" in page and "before they are reclaimed for another queue" in page
    assert "Documents and metrics refer to it, so it is fixed." in page
    assert "Optional full name, shown with the name." in page
