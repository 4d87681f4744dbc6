"""Browser test for the form that creates schedules."""

import pytest
from playwright.sync_api import expect

from projects.actor import Actor
from projects.models import Schedule
from projects.services import schedules
from projects.services.schedules import ScheduleValues
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import open_settled

pytestmark = pytest.mark.heavy


def test_offered_templates_depend_on_the_selected_project(opened: Open, scene: Scene) -> None:
    with_templates, without = (
        scene.projects["vision"],
        next(each for each in scene.projects.values() if not each.templates.exists()),
    )
    names = list(with_templates.templates.order_by("name").values_list("name", flat=True))
    with opened("ada") as (page, faults):
        open_settled(page, "/schedules/new")
        form = page.locator("form.form-page")
        form.get_by_label("Workload source").select_option("template")
        options = form.get_by_label("Template", exact=True).locator("option")
        form.get_by_label("Project").select_option(without.name)
        expect(options).to_have_text([f"No templates in {without.name}"])
        form.get_by_label("Project").select_option(with_templates.name)
        expect(options).to_have_text(["Choose a template", *names])
        form.get_by_label("Name").fill("from-template")
        form.get_by_label("Frequency").select_option("custom")
        form.get_by_label("Cron", exact=True).fill("0 3 * * 1")
        form.get_by_label("Template", exact=True).select_option(names[0])
        form.get_by_role("button", name="Create schedule").click()
        expect(page.get_by_role("heading", name="from-template")).to_be_visible()
        assert faults == []
    assert Schedule.objects.get(name="from-template").template == names[0]


def test_schedule_form_shows_only_the_fields_of_the_selected_frequency(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        page.goto("/schedules")
        page.get_by_role("link", name="Create schedule").click()
        form = page.locator("form.form-page")
        next_runs = form.locator("#schedule_next_runs")
        expect(next_runs).to_contain_text("Daily at 03:00")
        expect(form.get_by_label("Cron", exact=True)).to_be_hidden()
        form.get_by_label("Frequency").select_option("weekly")
        form.get_by_label("Day of the week").select_option("5")
        form.get_by_label("Time", exact=True).fill("17:30")
        expect(next_runs).to_contain_text("Fridays at 17:30")
        expect(next_runs.locator("li")).to_contain_text(["Fri"] * 5)
        page.set_viewport_size({"width": 390, "height": 800})
        tops = [
            form.get_by_role("heading", name=title, exact=True).evaluate("e => e.getBoundingClientRect().top")
            for title in ("Schedule", "Time", "Next runs", "Workload")
        ]
        assert tops == sorted(tops), "on phones, the next runs follow the time"
        page.set_viewport_size({"width": 1280, "height": 800})
        form.get_by_label("Name").fill("fridays")
        form.get_by_label("Workload source").select_option("document")
        form.get_by_label("Workload in YAML").fill("command: 'true'\nroles: [{gpu: 1}]\n")
        form.get_by_role("button", name="Create schedule").click()
        expect(page.get_by_role("heading", name="fridays")).to_be_visible()
        page.get_by_role("link", name="Edit schedule").click()
        form = page.locator("form.form-page")
        expect(form.get_by_label("Frequency")).to_have_value("weekly")
        expect(form.get_by_label("Time", exact=True)).to_have_value("17:30")
        form.get_by_label("Frequency").select_option("custom")
        expect(form.get_by_label("Cron", exact=True)).to_have_value("30 17 * * 5")
        assert faults == []
    assert Schedule.objects.get(name="fridays").cron == "30 17 * * 5"


def test_first_visit_to_the_schedule_form_suggests_the_browsers_time_zone(opened: Open) -> None:
    with opened("ada", locale="en-US") as (
        page,
        faults,
    ):
        page.goto("/schedules/new")
        expect(page.get_by_label("Time zone")).to_have_value("Europe/Berlin")
        expect(page.locator("#schedule_next_runs")).to_contain_text("Europe/Berlin")
        assert faults == []


def test_rejected_run_opens_a_dialog_with_the_reason_and_the_next_step(opened: Open, scene: Scene) -> None:
    values, dave = ScheduleValues("0 3 * * 1", template="nightly"), Actor.for_user(scene.people["dave"])
    schedules.set_schedule(actor=dave, project=scene.projects["vision"], name="orphan", values=values)
    with opened("ada") as (page, faults):
        page.goto("/schedules/vision/orphan")
        page.get_by_role("link", name="Run now").click()
        dialog = page.locator("#dialog")
        expect(dialog.get_by_role("button", name="Run now")).to_be_visible()
        Schedule.objects.filter(name="orphan").update(template="gone")
        dialog.get_by_role("button", name="Run now").click()
        expect(dialog.get_by_role("heading", name="orphan cannot run now")).to_be_visible()
        expect(dialog).to_contain_text("Template gone no longer exists.")
        expect(dialog.get_by_role("link", name="Edit schedule")).to_be_visible()
        dialog.get_by_role("link", name="Close").click()
        expect(dialog).to_be_hidden()
        assert all("422" in fault for fault in faults)
