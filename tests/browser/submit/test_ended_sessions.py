"""Browser tests that a half-filled form is restored when the user signs in again after the session ended."""

import re

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from projects.actor import Actor
from projects.models import ApiToken, Project, Workload
from projects.services import quotas
from tests.browser.conftest import Open
from tests.browser.data.scene import PASSWORD, Scene
from tests.browser.driver.chromium import open_settled
from tests.journeys.installation import until

STORED_DRAFT = "sessionStorage.getItem('berth-draft')"
ROLE = re.compile(r"name: role-2\n    replicas: 3\n    gpu: 0\.5")
RESTORED = "Your input was restored."


def end_session() -> None:
    Session.objects.all().delete()


def sign_in(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.heavy
def test_submission_can_be_completed_after_signing_in_again(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, _):
        page.goto("/submit")
        page.get_by_role("button", name="Add role").click()
        expect(page.get_by_role("heading", name="Role role-2")).to_be_visible()
        page.get_by_label("Project", exact=True).select_option("vision")
        page.locator("#f-roles-1-gpu").fill("0.5")
        page.get_by_label("Name", exact=True).fill("survives")
        expect(page.locator("#document")).to_have_value(re.compile("name: survives"))
        end_session()
        page.locator("#f-roles-1-at_least").fill("3")
        page.get_by_role("button", name="Submit workload", exact=True).click()
        sign_in(page, "dave")
        page.wait_for_url("**/submit")
        expect(page.get_by_text(RESTORED)).to_be_visible()
        expect(page.get_by_label("Name", exact=True)).to_have_value("survives")
        expect(page.locator("#f-roles-1-at_least")).to_have_value("3")
        expect(page.locator("#document")).to_have_value(ROLE)
        page.get_by_role("button", name="Submit workload", exact=True).click()
        page.locator("#dialog").get_by_role("button", name="Submit and evict").click()
        expect(page.get_by_role("heading", name="survives")).to_be_visible()
        assert Workload.objects.get(name="survives").submitted_by == scene.people["dave"]
        page.goto("/submit")
        assert page.evaluate(STORED_DRAFT) is None, "a submitted draft is deleted"
        expect(page.get_by_label("Name", exact=True)).to_have_value("my-training")


@pytest.mark.heavy
def test_expired_session_shows_a_notice_without_leaving_the_page(opened: Open) -> None:
    with opened("dave") as (page, _):
        page.goto("/submit")
        end_session()
        page.get_by_label("Name", exact=True).fill("half-typed")
        expect(page.get_by_text("Your session has ended. Your input is saved.")).to_be_visible()
        assert page.url.endswith("/submit"), "the page does not redirect while a user types"
        page.get_by_label("Command", exact=True).fill("python half.py")
        page.get_by_role("button", name="Sign in again").click()
        sign_in(page, "dave")
        expect(page.get_by_label("Name", exact=True)).to_have_value("half-typed")
        expect(page.locator("#document")).to_have_value(re.compile("command: python half.py"))


@pytest.mark.heavy
def test_form_input_is_restored_after_login_without_javascript(opened: Open) -> None:
    with opened("dave") as (page, _):
        page.goto("/account")
        page.get_by_role("link", name="Create token").click()
        page.get_by_role("dialog").get_by_label("Name").fill("nightly-runs")
        end_session()
        page.route("**/drafts*.js", lambda route: route.abort())
        page.get_by_role("dialog").get_by_role("button", name="Create token").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.unroute("**/drafts*.js")
        sign_in(page, "dave")
        expect(page.get_by_label("Name")).to_have_value("nightly-runs")


@pytest.mark.heavy
def test_quota_grid_draft_is_restored(opened: Open, scene: Scene) -> None:
    with opened("bert") as (page, _):
        page.goto("/quotas")
        cell = page.locator("tr[data-name=vision] td").first
        cell.click()
        page.keyboard.type("13")
        page.keyboard.press("Enter")
        expect(cell.locator("ins")).to_have_text("13")
        end_session()
        page.get_by_role("button", name="Preview impact").click()
        sign_in(page, "bert")
        expect(page.locator("tr[data-name=vision] td").first.locator("ins")).to_have_text("13")


@pytest.mark.heavy
def test_quota_draft_is_restored_in_rows_that_load_late(opened: Open, scene: Scene) -> None:
    ada = Actor.for_user(scene.people["ada"])
    research, train = scene.departments["research"], scene.pools["train"]
    Project.objects.bulk_create(Project(name=f"a-{n:03}", department=research) for n in range(100))
    with opened("bert") as (page, _):
        open_settled(page, "/quotas?pools=train")
        cells = {name: page.locator(f"tr[data-name={name}] td").first for name in ("a-001", "vision")}
        cells["a-001"].click()
        page.keyboard.press("Control+End")
        for name, cell in cells.items():
            cell.click()
            page.keyboard.type("13")
            page.keyboard.press("Enter")
            expect(cell.locator("ins"), name).to_have_text("13")
        end_session()
        quotas.set_quota(actor=ada, owner=scene.projects["vision"], pool=train, values={"gpu": 5})
        page.get_by_role("button", name="Preview impact").click()
        sign_in(page, "bert")
        for cell in cells.values():
            expect(cell.locator("ins")).to_have_text("13")
        expect(page.get_by_role("alert")).to_contain_text("Quota (GPUs) of vision in pool train")
        expect(page.get_by_role("button", name="Apply")).to_be_disabled()


@pytest.mark.heavy
def test_dialog_form_input_is_restored_when_the_form_opens_as_a_full_page(opened: Open, scene: Scene) -> None:
    with opened("bert") as (page, _):
        page.goto("/account")
        page.get_by_role("link", name="Create token").click()
        page.get_by_role("dialog").get_by_label("Name").fill("nightly-runs")
        page.get_by_role("dialog").get_by_label("Expires after").select_option("30")
        end_session()
        page.get_by_role("dialog").get_by_role("button", name="Create token").click()
        sign_in(page, "bert")
        page.wait_for_url("**/access/tokens/new")
        expect(page.get_by_label("Name")).to_have_value("nightly-runs")
        expect(page.get_by_label("Expires after")).to_have_value("30")


@pytest.mark.heavy
def test_draft_is_not_restored_for_another_user_and_contains_no_secrets(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, _):
        page.goto("/notifications/new")
        page.get_by_label("Channel").select_option("webhook")
        page.get_by_label("To", exact=True).fill("https://hooks.example.org/a-secret")
        page.get_by_label("Pending threshold (minutes)").fill("17")
        end_session()
        page.get_by_role("button", name="Create subscription").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        stored = page.evaluate(STORED_DRAFT)
        assert '"17"' in stored
        assert "a-secret" not in stored and "csrf" not in stored
        sign_in(page, "carol")
        expect(page.get_by_label("Pending threshold (minutes)")).to_have_value("60")
        until(lambda: page.evaluate(STORED_DRAFT) is None)
        expect(page.get_by_label("Pending threshold (minutes)")).to_have_value("60")


@pytest.mark.heavy
def test_form_can_be_submitted_after_signing_in_in_another_tab(opened: Open, scene: Scene) -> None:
    with opened("bert") as (page, _):
        page.goto("/access/tokens/new")
        page.get_by_label("Name").fill("nightly-runs")
        end_session()
        other = page.context.new_page()
        other.goto("/quotas")
        sign_in(other, "bert")
        expect(other.get_by_role("heading", name="Quotas", level=1)).to_be_visible()
        page.get_by_role("button", name="Create token").click()
        expect(page.get_by_text("berth_").first).to_be_visible()
        assert ApiToken.objects.filter(name="nightly-runs").exists()
