"""Browser tests for the dialog before a quota draft evicts or deletes, and for errors of its expiry."""

from playwright.sync_api import expect

from projects.models import Quota
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW, open_settled
from tests.browser.every_page.pages import OVERFLOW
from tests.browser.quotas.test_quota_grid import cell


def test_quota_deletion_is_applied_only_after_confirmation(opened: Open, scene: Scene) -> None:
    where = {"project": scene.projects["vision"], "pool": scene.pools["train"]}
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas")
        cell(page, "vision").focus()
        page.keyboard.press("Delete")
        dialog = page.locator("#dialog")
        page.get_by_role("button", name="Apply changes").click()
        expect(dialog.get_by_role("heading", level=2)).to_contain_text("elete 1 quota?")
        expect(dialog).to_contain_text("vision in pool train")
        expect(dialog.get_by_text("Cancel")).to_be_focused()
        assert accessibility_faults(page) == []
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(page.locator("[data-summary]")).to_have_text("1 quota deleted")
        assert Quota.objects.filter(**where).exists()
        page.get_by_role("button", name="Apply changes").click()
        dialog.get_by_role("button", name="Apply changes").click()
        expect(page.get_by_text("1 quota deleted.")).to_be_visible()
        page.locator("#toasts").get_by_role("link", name="Show change").click()
        expect(page.get_by_role("link", name="Revert change")).to_have_count(1)
        assert faults == []
    assert not Quota.objects.filter(**where).exists()


def test_expiry_error_stays_next_to_the_field_until_the_expiry_is_corrected(
    opened: Open, scene: Scene
) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, _):
        open_settled(page, "/quotas")
        cell(page, "vision").tap()
        page.locator(".cell-editor").fill("9")
        page.keyboard.press("Enter")
        expires = page.get_by_label("Expires")
        expires.fill("2020-01-01T09:00")
        page.get_by_role("button", name="Preview impact").click()
        error = page.locator(".field:has(#draft-until) .error")
        expect(error).to_have_text("This time is in the past. Enter a later time.")
        expect(expires).to_have_attribute("aria-invalid", "true")
        expect(expires).to_be_focused()
        assert accessibility_faults(page) == []
        assert page.evaluate(OVERFLOW) <= 0
        expires.fill("")
        expect(error).to_have_count(0)
        page.get_by_role("button", name="Preview impact").click()
        expect(page.locator("#impact-title")).to_be_focused()
        expect(page.locator("#impact-title")).to_be_in_viewport()
        page.keyboard.press("Control+z")
        expect(page.locator("[data-summary]")).to_have_text("No unsaved edits")
