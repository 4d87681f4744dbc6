"""Browser tests for the quota grid: spreadsheet editing and conflicts."""

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from projects.models import Project, Quota, QuotaChange
from projects.web.quotas.cells import NO_QUOTA
from tests import factories as make
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW, open_settled
from tests.browser.every_page.pages import OVERFLOW
from tests.journeys.installation import until

WITH_DEFAULTS = "/quotas?values=gpu&values=limit_gpu&values=weight&values=rank"  # also with hidden columns


def cell(page: Page, owner: str, pool: str = "train", field: str = "gpu") -> Locator:
    heads = page.locator("#quota-grid thead [data-field]")
    columns = heads.evaluate_all("all => all.map(th => [th.dataset.pool, th.dataset.field])")
    row = page.locator(f"#quota-grid tbody tr[data-name='{owner}']")
    return row.locator("td").nth(columns.index([pool, field]))


def draft_cells(page: Page) -> dict[tuple[str, str], str]:
    draft: dict[str, Any] = json.loads(page.locator("input[name=draft]").input_value() or '{"cells": []}')
    return {(owner, field): text for owner, _, field, text in draft["cells"]}


def apply(page: Page, message: str) -> None:
    """Apply the draft, and confirm the question about evictions and deletions if there is one."""
    page.get_by_role("button", name="Apply changes").click()
    done, confirm = page.get_by_text(message), page.locator("#dialog").get_by_role("button", name="Apply")
    expect(done.or_(confirm).first).to_be_visible()
    if confirm.is_visible():
        confirm.click()
    expect(done).to_be_visible()


def expect_invalid_value_to_stay(page: Page) -> None:
    """Type an invalid value, and check that it stays with its error instead of being previewed or applied."""
    page.keyboard.type("1e")
    for button in ("Preview impact", "Apply changes"):
        page.get_by_role("button", name=button).click()
        expect(page.locator(".cell-editor")).to_be_focused()
        expect(page.locator(".cell-editor")).to_have_value("1e")
        expect(page.locator("#cell-error")).to_be_visible()
    expect(page.locator("#impact-title")).to_have_count(0)
    page.keyboard.press("Escape")


@pytest.mark.heavy
def test_quotas_are_edited_with_the_keyboard_previewed_and_applied(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas")
        vision = cell(page, "vision")
        vision.focus()
        page.keyboard.type("12")
        page.keyboard.press("Enter")
        expect(vision).to_contain_text("12")
        expect(vision.locator("del")).to_contain_text("8")
        page.keyboard.press("Control+z")
        expect(vision).to_have_text("8")
        page.keyboard.press("Control+y")
        expect(vision.locator("ins")).to_have_text("12")
        page.keyboard.press("F2")
        page.keyboard.type("99")
        page.keyboard.press("Escape")
        expect(vision.locator("ins")).to_have_text("12")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.keyboard.type("none of your business")
        page.keyboard.press("Enter")
        expect(page.locator("#cell-error")).to_contain_text(
            "Enter a number from 0 in steps of 0.001, such as 8 or 0.5, or ∞ for unlimited."
        )
        box, row = page.locator("#cell-error").bounding_box(), vision.locator("..").bounding_box()
        assert box and row and box["width"] > 150 and row["height"] < 60, "the error does not stretch the row"
        page.keyboard.press("Control+a")
        page.keyboard.type("20")
        page.keyboard.press("Tab")
        expect(page.locator("td:focus")).to_have_text("2", use_inner_text=True)
        page.keyboard.type("9")
        page.keyboard.press("Enter")
        expect(page.locator("[data-summary]")).to_have_text("3 cells of 1 quota changed")
        page.keyboard.press("Backspace")
        expect(page.locator("[data-summary]")).to_have_text("2 cells of 1 quota changed")
        expect_invalid_value_to_stay(page)
        page.get_by_role("button", name="Preview impact").click()
        expect(page.locator("#impact-title")).to_be_focused()
        expect(page.get_by_role("region", name="In pool train")).to_contain_text("vision")
        page.evaluate("window.stillTheSame = true")
        apply(page, "1 quota saved.")
        expect(vision).to_have_text("12")
        expect(vision).to_have_attribute("data-allocated", "12 allocated")
        assert vision.get_attribute("data-over") is None, "the allocation no longer exceeds the quota"
        expect(page.locator("#quota-changes-form")).to_be_hidden()
        assert page.evaluate("window.stillTheSame")
        assert faults == []
    quota = Quota.objects.get(project=scene.projects["vision"], pool=scene.pools["train"])
    assert (quota.gpu_milli, quota.limit_gpu_milli) == (12_000, 20_000)
    assert QuotaChange.objects.first() is not None


@pytest.mark.heavy
def test_quota_deletion_is_drafted_applied_and_reverted(opened: Open, scene: Scene) -> None:
    # Unlike setting 0 GPUs, deleting a quota deletes its limit, weight and rank. A revert restores them.
    where = {"project": scene.projects["vision"], "pool": scene.pools["train"]}
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas")
        vision, limit = cell(page, "vision"), cell(page, "vision", field="limit_gpu")
        sums = cell(page, "research").locator(".sub")
        before = sums.inner_text()
        limit.focus()
        page.keyboard.press("Delete")
        expect(limit.locator("ins")).to_have_text("∞")
        page.keyboard.press("Backspace")
        expect(limit).to_have_text("16")
        page.keyboard.type("-")
        page.keyboard.press("Enter")
        expect(page.locator("#cell-error")).to_contain_text("means no quota")
        page.keyboard.press("Escape")
        vision.focus()
        page.keyboard.press("Delete")
        expect(vision.locator("ins")).to_have_text("deleted")
        expect(vision.locator("del")).to_contain_text("was 8")
        for field in ("limit_gpu", "weight"):
            expect(cell(page, "vision", field=field)).to_have_text("deleted")
        expect(page.locator("[data-summary]")).to_have_text("1 quota deleted")
        expect(page.locator("#grid-status")).to_have_text("vision would have no quota in pool train.")
        assert float(sums.inner_text().split()[0]) == float(before.split()[0]) - 8
        limit.focus()
        page.keyboard.type("14")
        page.keyboard.press("Enter")
        expect(vision).to_have_text("8")  # setting a value of the quota undoes the deletion
        expect(sums).to_have_text(before)
        page.keyboard.press("Control+z")
        expect(vision.locator("ins")).to_have_text("deleted")
        page.get_by_role("button", name="Preview impact").click()
        expect(page.get_by_role("region", name="In pool train")).to_contain_text(
            "Quota to be deleted, including limit, weight and rank: vision"
        )
        apply(page, "1 quota deleted.")
        expect(vision).to_have_text(NO_QUOTA)
        expect(vision).to_have_attribute("title", "Allocated and reserved GPUs exceed the quota")
        assert not Quota.objects.filter(**where).exists()
        vision.focus()
        page.keyboard.type("0")
        page.keyboard.press("Enter")
        expect(limit).to_have_text("∞")  # default for a new quota
        page.keyboard.press("Control+z")
        expect(limit).to_have_text(NO_QUOTA)
        page.goto("/quotas/changes")
        page.get_by_role("link", name="Revert").first.click()
        page.get_by_role("button", name="Revert change").click()
        expect(page.get_by_text("reverted by change")).to_be_visible()
        assert faults == []
    assert Quota.objects.get(**where).limit_gpu_milli == 16_000


@pytest.mark.heavy
def test_user_resolves_a_conflict_between_deleting_and_changing_a_quota(opened: Open, scene: Scene) -> None:
    with opened("ada") as (ada, _), opened("bert") as (bert, faults):
        for page in (ada, bert):
            open_settled(page, WITH_DEFAULTS)
            expect(page.locator(".live")).to_have_text("Connected")
        cell(bert, "vision").focus()
        bert.keyboard.press("Delete")
        cell(ada, "vision", field="rank").focus()
        ada.keyboard.type("4")
        ada.keyboard.press("Enter")
        apply(ada, "1 quota saved.")
        alert = bert.get_by_role("alert")
        expect(alert).to_contain_text("ada changed the quota, and you deleted it")
        bert.get_by_role("button", name="Use theirs").click()
        expect(cell(bert, "vision")).to_have_text("8")
        expect(cell(bert, "vision", field="rank")).to_have_text("4")

        cell(bert, "vision", field="weight").focus()
        bert.keyboard.type("5")
        bert.keyboard.press("Enter")
        cell(ada, "vision").focus()
        ada.keyboard.press("Delete")
        apply(ada, "1 quota deleted.")
        expect(alert).to_contain_text("ada deleted the quota; yours is 5")
        expect(cell(bert, "vision")).to_have_text("0")  # value if the user creates the quota again
        bert.get_by_role("button", name="Keep mine").click()
        apply(bert, "1 quota saved.")
        assert faults == []
    quota = Quota.objects.get(project=scene.projects["vision"], pool=scene.pools["train"])
    assert (quota.gpu_milli, quota.weight_gpu, quota.rank) == (0, 5.0, None)


@pytest.mark.heavy
def test_oversubscribed_department_is_marked_while_the_user_types(opened: Open, scene: Scene) -> None:
    with opened("bert") as (page, faults):
        open_settled(page, "/quotas")
        sums = cell(page, "research").locator(".sub")
        assert "warn" not in (sums.get_attribute("class") or "")
        cell(page, "vision").focus()
        page.keyboard.type("40")
        page.keyboard.press("Enter")
        expect(sums).to_have_class("sub warn")
        expect(page.locator("#grid-status")).to_contain_text("research is oversubscribed in pool train")
        page.keyboard.press("Control+z")
        expect(sums).to_have_class("sub")
        cell(page, "research").focus()
        page.keyboard.type("5")
        expect(page.locator("#grid-status")).to_contain_text("You cannot edit")
        assert draft_cells(page) == {}
        assert faults == []


@pytest.mark.heavy
def test_cells_can_be_copied_to_and_pasted_from_a_spreadsheet(opened: Open, scene: Scene) -> None:
    with opened("ada", permissions=["clipboard-read", "clipboard-write"]) as (page, faults):
        open_settled(page, "/quotas")
        names = page.locator("#quota-grid tbody th").all_inner_texts()
        first, second = "speech", "vision"
        assert names.index(second) == names.index(first) + 1
        page.evaluate("navigator.clipboard.writeText('6\\t1,500\\t3\\n\\t30\\tfoo\\n')")
        cell(page, first).focus()
        page.keyboard.press("Control+v")
        expect(page.locator("#grid-status")).to_contain_text("4 pasted, 1 skipped")
        keys = {name: f"project-{scene.projects[name].pk}" for name in (first, second)}
        assert draft_cells(page) == {
            (keys[first], "gpu"): "6", (keys[first], "limit_gpu"): "1500", (keys[first], "weight"): "3",
            (keys[second], "limit_gpu"): "30",
        }  # fmt: skip
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowDown")
        expect(page.locator("td[aria-selected=true]")).to_have_count(4)
        page.keyboard.press("Control+c")
        assert page.evaluate("navigator.clipboard.readText()") == "6\t1500\n8\t30"
        page.keyboard.press("Control+z")
        assert draft_cells(page) == {}, "pasting a block is one undo step"
        assert faults == []


@pytest.mark.heavy
def test_conflicting_quota_edits_are_resolved_cell_by_cell(opened: Open, scene: Scene) -> None:
    # Both start from the same values; the second admin sees both values of each conflicting cell.
    with opened("ada") as (ada, _), opened("bert") as (bert, faults):
        for page in (ada, bert):
            open_settled(page, WITH_DEFAULTS)
            expect(page.locator(".live")).to_have_text("Connected")
        for field, text in (("gpu", "7"), ("weight", "5"), ("limit_gpu", "14")):
            cell(bert, "vision", field=field).focus()
            bert.keyboard.type(text)
            bert.keyboard.press("Enter")
        for field, text in (("gpu", "6"), ("rank", "4"), ("limit_gpu", "15")):
            cell(ada, "vision", field=field).focus()
            ada.keyboard.type(text)
            ada.keyboard.press("Enter")
        apply(ada, "1 quota saved.")

        alert = bert.get_by_role("alert")
        expect(alert).to_contain_text("Quota (GPUs) of vision in pool train: ada set 6; yours is 7")
        expect(cell(bert, "vision", field="rank")).to_have_text(
            "4"
        )  # the live update applies immediately, because this admin has not edited the cell
        expect(cell(bert, "vision", field="gpu").locator("del")).to_contain_text("ada set 6")
        expect(bert.get_by_role("button", name="Apply")).to_be_disabled()
        bert.get_by_role("button", name="Keep mine: Quota (GPUs) of vision in pool train").click()
        bert.get_by_role("button", name="Use theirs: Limit (GPUs) of vision in pool train").click()
        expect(alert).to_have_count(0)
        expect(bert.locator("[data-summary]")).to_have_text("2 cells of 1 quota changed")
        apply(bert, "1 quota saved.")
        expect(cell(ada, "vision", field="gpu")).to_have_text("7")  # the first admin gets the live update too
        assert faults == []
    quota = Quota.objects.get(project=scene.projects["vision"], pool=scene.pools["train"])
    assert (quota.gpu_milli, quota.limit_gpu_milli, quota.weight_gpu, quota.rank) == (7000, 15_000, 5.0, 4)


@pytest.mark.heavy
def test_server_rejects_a_conflicting_draft_if_live_updates_are_unavailable(
    opened: Open, scene: Scene
) -> None:
    with opened("ada") as (ada, _), opened("bert") as (bert, _):
        bert.route_web_socket("**/ws/live?*", lambda socket: None)  # this socket is connected but silent
        for page, text in ((bert, "7"), (ada, "6")):
            open_settled(page, "/quotas")
            cell(page, "vision").focus()
            page.keyboard.type(text)
            page.keyboard.press("Enter")
        apply(ada, "1 quota saved.")
        bert.get_by_role("button", name="Apply").click()
        expect(bert.get_by_role("alert")).to_contain_text("ada set 6; yours is 7")
        assert (
            Quota.objects.get(project=scene.projects["vision"], pool=scene.pools["train"]).gpu_milli == 6000
        )
        bert.get_by_role("button", name="Keep mine").click()
        apply(bert, "1 quota saved.")


@pytest.mark.heavy
def test_rows_that_load_late_do_not_interrupt_typing(opened: Open, scene: Scene) -> None:
    Project.objects.bulk_create(
        Project(name=f"a-{n:03}", department=scene.departments["research"]) for n in range(100)
    )
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas?pools=train")
        held: list[Route] = []

        def hold(route: Route) -> None:
            if held:
                route.fallback()
            else:
                held.append(route)

        page.route("**/quotas?*rows=*", hold)
        cell(page, "a-001").click()
        page.keyboard.press("Control+End")
        until(lambda: page.evaluate("0") == 0 and held)
        cell(page, "a-003").click()
        page.keyboard.type("13")
        held[0].continue_()
        expect(cell(page, "vision")).to_have_text("8")
        page.keyboard.type("5")
        page.keyboard.press("Enter")
        expect(cell(page, "a-003").locator("ins")).to_have_text("135")
        assert faults == []


@pytest.mark.heavy
def test_quota_draft_survives_scrolling_and_filtering(opened: Open, scene: Scene) -> None:
    Project.objects.bulk_create(
        Project(name=f"many-{n:03}", department=scene.departments["product"]) for n in range(150)
    )
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas")
        expect(page.locator("#quota-grid tbody tr")).to_have_count(60)
        cell(page, "ads").focus()
        page.keyboard.type("5")
        page.keyboard.press("Enter")
        page.keyboard.press("Control+End")
        expect(page.locator("#quota-grid tbody tr")).to_have_count(157)
        expect(page.locator("td:focus")).to_have_count(1)
        assert page.locator("tr:has(td:focus)").get_attribute("aria-rowindex") == "159"
        page.get_by_role("searchbox").fill("many-1")
        expect(page.locator("#quota-grid tbody tr")).to_have_count(51)
        expect(page.locator("[data-summary]")).to_have_text("1 cell of 1 quota changed")
        page.get_by_role("searchbox").fill("ads")
        expect(cell(page, "ads").locator("ins")).to_have_text("5")
        assert faults == []


@pytest.mark.heavy
def test_grid_has_one_tab_stop_and_is_accessible(opened: Open, scene: Scene) -> None:
    make.quota(scene.projects["ads"], scene.pools["local"], 1)
    for scheme in ("light", "dark"):
        with opened("ada", color_scheme=scheme) as (page, _):
            open_settled(page, "/quotas")
            assert page.locator("#quota-grid [tabindex='0']").count() == 1
            cell(page, "ads").focus()
            page.keyboard.type("5")
            page.keyboard.press("Enter")
            cell(page, "ads", "local").focus()
            page.keyboard.press("Enter")
            assert (
                page.locator(".cell-editor").get_attribute("aria-label")
                == "Quota (GPUs) of ads in pool local"
            )
            assert accessibility_faults(page) == []
            page.keyboard.press("Escape")
            assert accessibility_faults(page) == []
            snapshot = page.locator("#quota-grid").aria_snapshot()
            assert "grid" in snapshot and "gridcell" in snapshot and "rowheader" in snapshot


@pytest.mark.heavy
def test_quota_grid_can_be_edited_by_touch_on_a_phone(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        open_settled(page, "/quotas")
        vision = cell(page, "vision")
        vision.tap()
        page.locator(".cell-editor").fill("12")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Preview impact").click()
        expect(page.locator("#impact-title")).to_be_visible()
        assert page.evaluate(OVERFLOW) <= 0
        assert accessibility_faults(page) == []
        assert faults == []
