"""Browser test for the buttons that add secrets to the submission form."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open

pytestmark = pytest.mark.heavy


def test_buttons_add_secrets_to_the_field_and_to_the_document(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.locator("#p-secrets-and-outputs > summary").click()
        field, document = page.get_by_label("Secrets", exact=True), page.locator("#document")
        buttons = page.get_by_role("group", name="Secrets for Secrets")
        token = buttons.get_by_role("button", name="hf-token")
        token.focus()
        page.keyboard.press("Enter")
        expect(field).to_have_value("hf-token=HF_TOKEN")
        expect(token).to_have_attribute("aria-pressed", "true")
        expect(document).to_have_value(re.compile(r"- name: hf-token\n    env: HF_TOKEN\n"))
        expect(token).to_be_focused()
        field.fill("hf-token=file:token")
        buttons.get_by_role("button", name="wandb-api-key").click()
        expect(field).to_have_value("hf-token=file:token\nwandb-api-key=WANDB_API_KEY")
        token.click()
        expect(field).to_have_value("wandb-api-key=WANDB_API_KEY")
        expect(document).not_to_have_value(re.compile("hf-token"))
        expect(token).to_have_attribute("aria-pressed", "false")
        assert faults == []


def test_collapsed_section_with_an_error_is_expanded(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        document, field = page.locator("#document"), page.get_by_label("Secrets", exact=True)
        expect(page.locator("#prediction-title")).to_be_visible()
        expect(field).to_be_hidden()
        document.fill(f"{document.input_value()}secrets: [{{name: unknown, env: A}}]\n")
        expect(field).to_be_visible()
        expect(field).to_have_attribute("aria-invalid", "true")
        assert faults == []
