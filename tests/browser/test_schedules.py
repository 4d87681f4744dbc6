"""Browser test for the form that creates schedules."""

from playwright.sync_api import expect

from projects.models import Schedule
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene


def test_templates_to_choose_from_follow_the_project(opened: Open, scene: Scene) -> None:
    with_templates, without = (
        scene.projects["vision"],
        next(each for each in scene.projects.values() if not each.templates.exists()),
    )
    names = list(with_templates.templates.order_by("name").values_list("name", flat=True))
    with opened("ada") as (page, faults):
        page.goto("/schedules")
        page.get_by_role("link", name="Create schedule").click()
        form = page.get_by_role("dialog")
        form.get_by_label("Workload from").select_option("template")
        options = form.get_by_label("Template", exact=True).locator("option")
        form.get_by_label("Project").select_option(without.name)
        expect(options).to_have_text([f"No templates in {without.name}"])
        form.get_by_label("Project").select_option(with_templates.name)
        expect(options).to_have_text(["Choose a template", *names])
        form.get_by_label("Name").fill("from-template")
        form.get_by_label("Cron").fill("0 3 * * 1")
        form.get_by_label("Template", exact=True).select_option(names[0])
        form.get_by_role("button", name="Create schedule").click()
        expect(page.get_by_role("heading", name="from-template")).to_be_visible()
        assert faults == []
    assert Schedule.objects.get(name="from-template").template == names[0]
