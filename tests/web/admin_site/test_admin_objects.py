"""Tests for the pages of single objects on the admin site: deletion, audited changes and empty lists."""

import re

import pytest
from django.contrib import admin
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from projects.models import Audit, Project, Quota, Workload
from projects.services import tenants
from scheduler.models import Cycle, Eviction, QueueStatus
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.admin_site.test_admin_lists import heading, rows, text_of

admin.autodiscover()


def test_project_with_a_fair_share_is_deleted_after_a_confirmation(admin_client: Client, cast: Cast) -> None:
    make.queue_status(cast.vision, cast.pool, share=4, allocated=2, requested=6)
    address = reverse("admin:projects_project_delete", args=[cast.vision.pk])
    page = text_of(admin_client.get(address).content.decode())
    assert "Delete project vision? This cannot be undone." in page
    assert "permission" not in page
    assert admin_client.post(address, {"post": "yes"}).status_code == 302
    assert not Project.objects.filter(name="vision").exists()
    assert Audit.objects.filter(object_type="project", action="delete", actor="alice").exists()


def test_selected_objects_are_deleted_after_a_confirmation(admin_client: Client, cast: Cast) -> None:
    both = [make.quota(each, cast.pool, 4) for each in (cast.vision, cast.speech)]
    address = reverse("admin:projects_quota_changelist")
    selection = {"action": "delete_selected", "_selected_action": [quota.pk for quota in both]}
    page = admin_client.post(address, selection).content.decode()
    text = " ".join(text_of(page).split())
    assert "Delete 2 quotas? speech in pool local vision in pool local This cannot be undone." in text
    assert "related items" not in text and "Summary" not in text
    form = page.partition('<form class="delete-card"')[2].partition("</form>")[0]
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]+)">', form)
    values: dict[str, list[str]] = {}
    for name, value in fields:
        values.setdefault(name, []).append(value)
    assert admin_client.post(address, values).status_code == 302
    assert not Quota.objects.filter(pk__in=[quota.pk for quota in both]).exists()
    assert Audit.objects.filter(object_type="quota", actor="alice").count() == 2


def test_no_selected_project_is_deleted_if_one_has_workloads(
    admin_client: Client, cast: Cast, running_workload: Workload
) -> None:
    keys = [running_workload.project_id, cast.speech.pk]
    selection = {"action": "delete_selected", "post": "yes", "_selected_action": keys}
    page = admin_client.post(reverse("admin:projects_project_changelist"), selection, follow=True)
    project = running_workload.project
    assert f"{project}: This project still has workloads. Delete them first." in page.content.decode()
    assert Project.objects.filter(pk__in=keys).count() == 2


def test_project_with_workloads_is_not_deleted_and_the_page_states_why(
    admin_client: Client, running_workload: Workload
) -> None:
    project = running_workload.project
    address = reverse("admin:projects_project_delete", args=[project.pk])
    page = admin_client.post(address, {"post": "yes"}, follow=True).content.decode()
    assert "This project still has workloads. Delete them first." in page
    assert Project.objects.filter(pk=project.pk).exists()


def test_object_form_links_to_the_audit_entries_of_the_object(admin_client: Client, cast: Cast) -> None:
    for project, title in ((cast.vision, "Vision"), (cast.speech, "Speech")):
        tenants.edit_project(actor=cast.alice, project=project, changes={"title": title})
    page = admin_client.get(reverse("admin:projects_project_change", args=[cast.vision.pk])).content.decode()
    (address,) = re.findall(r'href="([^"]*projects/audit/\?[^"]*)"', page)
    (entry,) = rows(admin_client.get(address.replace("&amp;", "&")).content.decode())
    assert "Edited project vision" in entry and "Vision" in entry


@pytest.mark.parametrize("model", [Cycle, Eviction])
def test_records_written_by_berth_do_not_link_to_audit_entries(
    model: type[Model], admin_client: Client, running_workload: Workload
) -> None:
    make.cycle()
    row = present(model._default_manager.first())
    name = f"scheduler_{model._meta.model_name}"
    page = admin_client.get(reverse(f"admin:{name}_change", args=[row.pk])).content.decode()
    assert "projects/audit/?" not in page


def test_fair_share_list_shows_departments_before_their_projects(admin_client: Client, cast: Cast) -> None:
    for owner in (cast.vision, cast.research):
        make.queue_status(owner, cast.pool, share=4, allocated=2, requested=6)
    assert QueueStatus.objects.count() == 2
    page = admin_client.get(reverse("admin:scheduler_queuestatus_changelist")).content.decode()
    assert [row.split()[0] for row in rows(page)] == ["research", "vision"]
    assert re.findall(r'<tr class="data-row[^"]*?(group|child)">', page) == ["group", "child"]


def test_empty_list_of_background_tasks_explains_what_appears_there(admin_client: Client) -> None:
    page = text_of(admin_client.get(reverse("admin:django_q_failure_changelist")).content.decode())
    assert "No failed tasks yet A task that fails appears here with its error" in page


def test_quota_form_shows_the_owners_rank_and_links_to_the_pools_quotas(
    admin_client: Client, cast: Cast
) -> None:
    cast.vision.rank = 7
    cast.vision.save()
    quota = make.quota(cast.vision, cast.pool, 4)
    page = admin_client.get(reverse("admin:projects_quota_change", args=[quota.pk])).content.decode()
    (field,) = re.findall(r'<input[^>]*name="rank"[^>]*>', page)
    assert 'placeholder="inherits 7"' in field
    assert f'href="{reverse("quotas")}?pool=local"' in page


def test_record_pages_have_titles_and_show_all_times(admin_client: Client, cast: Cast) -> None:
    work = make.workload(cast.vision, "train")
    event = make.event(work, "submitted", "Submitted by dave.", at=make.ago(minutes=5))
    status = make.queue_status(cast.vision, cast.pool, share=4, allocated=2, requested=6)
    for model, row, title in (
        ("projects_event", event, "train: submitted"),
        ("scheduler_queuestatus", status, "vision in pool local"),
    ):
        page = admin_client.get(reverse(f"admin:{model}_change", args=[row.pk])).content.decode()
        assert title in heading(page), model
        assert re.search(r"<label[^>]*>Time</label>", page), model


def test_choices_are_in_sentence_case(admin_client: Client, cast: Cast) -> None:
    page = text_of(admin_client.get(reverse("admin:projects_membership_changelist")).content.decode())
    assert "Platform admin" in page and "Platform Admin" not in page
    page = admin_client.get(reverse("admin:pools_nodepool_change", args=[cast.pool.pk])).content.decode()
    assert ">Point in time</option>" in page


def test_admin_list_of_a_model_without_a_plural_name_counts_rows(admin_client: Client, cast: Cast) -> None:
    for minutes in (1, 2):
        make.scaling(cast.pool, "ready", "ready after 20 s", at=make.ago(minutes=minutes))
    page = text_of(admin_client.get(reverse("admin:pools_scalingevent_changelist")).content.decode())
    assert " 2 rows " in page
