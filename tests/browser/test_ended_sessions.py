"""Claims about a session that ends while somebody fills a form: what was typed is there after signing in."""

import re

from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from projects.acting import Acting
from projects.models import ApiToken, Project, Workload
from projects.services import quotas
from tests.browser.conftest import Open
from tests.browser.scene import PASSWORD, Scene
from tests.journeys.installation import until

KEPT = "sessionStorage.getItem('berth-draft')"
ROLE = re.compile(r"name: role-2\n    replicas: 3\n    gpu: 0\.5")
BACK = "Your input was restored."


def end_session() -> None:
    Session.objects.all().delete()


def sign_in(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def test_a_submission_is_finished_after_signing_in_again(opened: Open, scene: Scene) -> None:
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
        expect(page.get_by_text(BACK)).to_be_visible()
        expect(page.get_by_label("Name", exact=True)).to_have_value("survives")
        expect(page.locator("#f-roles-1-at_least")).to_have_value("3")
        expect(page.locator("#document")).to_have_value(ROLE)
        page.get_by_role("button", name="Submit workload", exact=True).click()
        expect(page.get_by_role("heading", name="survives")).to_be_visible()
        assert Workload.objects.get(name="survives").submitted_by == scene.people["dave"]
        page.goto("/submit")
        assert page.evaluate(KEPT) is None, "once it is through, nothing is kept"
        expect(page.get_by_label("Name", exact=True)).to_have_value("my-training")


def test_whoever_is_typing_is_told_and_decides_when_to_go(opened: Open) -> None:
    with opened("dave") as (page, _):
        page.goto("/submit")
        end_session()
        page.get_by_label("Name", exact=True).fill("half-typed")
        expect(page.get_by_text("Your session has ended. Your input is saved.")).to_be_visible()
        assert page.url.endswith("/submit"), "nobody is thrown out in the middle of a word"
        page.get_by_label("Command", exact=True).fill("python half.py")
        page.get_by_role("button", name="Sign in again").click()
        sign_in(page, "dave")
        expect(page.get_by_label("Name", exact=True)).to_have_value("half-typed")
        expect(page.locator("#document")).to_have_value(re.compile("command: python half.py"))


def test_who_signs_in_before_that_page_is_ready_loses_nothing(opened: Open) -> None:
    with opened("dave") as (page, _):
        page.goto("/access")
        page.get_by_role("link", name="Create token").click()
        page.get_by_role("dialog").get_by_label("Name").fill("nightly-runs")
        end_session()
        page.route("**/drafts*.js", lambda route: route.abort())
        page.get_by_role("dialog").get_by_role("button", name="Create token").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.unroute("**/drafts*.js")
        sign_in(page, "dave")
        expect(page.get_by_label("Name")).to_have_value("nightly-runs")


def test_a_draft_in_the_grid_of_quotas_is_put_back(opened: Open, scene: Scene) -> None:
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


def test_a_draft_in_rows_that_come_later_is_put_back_and_what_others_set_is_seen(
    opened: Open, scene: Scene
) -> None:
    ada = Acting.person(scene.people["ada"])
    research, train = scene.departments["research"], scene.pools["train"]
    Project.objects.bulk_create(Project(name=f"a-{n:03}", department=research) for n in range(100))
    with opened("bert") as (page, _):
        page.goto("/quotas?pools=train", wait_until="networkidle")
        cells = {name: page.locator(f"tr[data-name={name}] td").first for name in ("a-001", "vision")}
        cells["a-001"].click()
        page.keyboard.press("Control+End")
        for name, cell in cells.items():
            cell.click()
            page.keyboard.type("13")
            page.keyboard.press("Enter")
            expect(cell.locator("ins"), name).to_have_text("13")
        end_session()
        quotas.set_quota(acting=ada, owner=scene.projects["vision"], pool=train, values={"gpu": 5})
        page.get_by_role("button", name="Preview impact").click()
        sign_in(page, "bert")
        for cell in cells.values():
            expect(cell.locator("ins")).to_have_text("13")
        expect(page.get_by_role("alert")).to_contain_text("Quota, GPUs of vision on train")
        expect(page.get_by_role("button", name="Apply")).to_be_disabled()


def test_a_form_that_opened_in_a_dialog_comes_back_as_a_page(opened: Open, scene: Scene) -> None:
    with opened("bert") as (page, _):
        page.goto("/access")
        page.get_by_role("link", name="Create token").click()
        page.get_by_role("dialog").get_by_label("Name").fill("nightly-runs")
        page.get_by_role("dialog").get_by_label("Expires after").select_option("30")
        end_session()
        page.get_by_role("dialog").get_by_role("button", name="Create token").click()
        sign_in(page, "bert")
        page.wait_for_url("**/access/tokens/new")
        expect(page.get_by_label("Name")).to_have_value("nightly-runs")
        expect(page.get_by_label("Expires after")).to_have_value("30")


def test_nobody_else_is_given_it_and_secrets_are_never_kept(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, _):
        page.goto("/notifications/new")
        page.get_by_label("To", exact=True).fill("https://hooks.example.org/a-secret")
        page.get_by_label("Long wait, minutes").fill("17")
        end_session()
        page.get_by_role("button", name="Create subscription").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        kept = page.evaluate(KEPT)
        assert '"17"' in kept
        assert "a-secret" not in kept and "csrf" not in kept
        sign_in(page, "carol")
        expect(page.get_by_label("Long wait, minutes")).to_have_value("60")
        until(lambda: page.evaluate(KEPT) is None)
        expect(page.get_by_label("Long wait, minutes")).to_have_value("60")


def test_who_signed_in_again_in_another_tab_goes_on(opened: Open, scene: Scene) -> None:
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
        assert ApiToken.objects.get().name == "nightly-runs"
