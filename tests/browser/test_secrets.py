"""Browser test for the confirmation before a secret is replaced."""

from playwright.sync_api import expect

from projects.models import ProjectSecret
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import open_settled


def test_entered_secret_survives_the_replacement_confirmation(opened: Open, scene: Scene) -> None:
    before = ProjectSecret.objects.get(name="hf-token")
    with opened("carol") as (page, faults):
        open_settled(page, "/secrets")
        page.get_by_text("Add secret", exact=True).click()
        page.get_by_role("link", name="Value").click()
        form = page.locator("dialog form")
        form.get_by_label("Owner").select_option("project/vision")
        form.get_by_label("Name").fill("hf-token")
        form.get_by_label("Value").fill("hf_new value\nof two lines")
        with page.expect_response("**/secrets/new/value") as question:
            form.get_by_role("button", name="Add secret").click()
        expect(form).to_contain_text("Replace it?")
        assert "hf_new" not in question.value.text(), "the server never sends a secret back"
        expect(form.get_by_label("Value")).to_have_value("hf_new value\nof two lines")
        form.get_by_role("button", name="Replace secret").click()
        expect(page.get_by_text("Secret hf-token replaced.")).to_be_visible()
        page.get_by_text("Add secret", exact=True).click()
        page.get_by_role("link", name="Value").click()
        expect(page.locator("dialog form").get_by_label("Value")).to_have_value("")
        assert [fault for fault in faults if "422" not in fault] == []
    assert ProjectSecret.objects.get(pk=before.pk).version == before.version + 1
