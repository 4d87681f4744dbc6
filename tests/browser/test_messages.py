"""Browser tests for messages: the result of a change, shown on the next page, and the result of copying."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene

DOCUMENT = (
    "name: from-here\nproject: vision\npools: [train]\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
)

MESSAGE_AFTER_FAILED_REQUEST = """async () => {
    await new Promise((resolve) => {
        for (const name of ["htmx:sendError", "htmx:responseError"]) document.addEventListener(name, resolve);
        document.body.dispatchEvent(new Event("berth:errors"));
    });
    return document.getElementById("toasts").textContent;
}"""


def submit(page: Page, document: str) -> None:
    page.goto("/submit")
    page.locator("#document").fill(document)
    page.get_by_role("button", name="Submit workload", exact=True).click()
    expect(page.get_by_role("heading", name="from-here")).to_be_visible()


@pytest.mark.heavy
def test_success_message_disappears(opened: Open) -> None:
    with opened("dave") as (page, faults):
        submit(page, DOCUMENT)
        expect(page.locator("#toasts")).to_have_text("Workload from-here submitted.")
        expect(page.locator(".main > .notice.good")).to_have_count(0)
        expect(page.locator("#toasts")).to_be_empty(timeout=60_000)
        assert faults == []


@pytest.mark.heavy
def test_message_with_warnings_stays_and_is_marked_as_a_warning(opened: Open) -> None:
    with opened("dave") as (page, faults):
        submit(page, DOCUMENT.replace("gpu: 1", "gpu: 64"))
        expect(page.locator(".main > .notice.warn")).to_contain_text("Workload from-here submitted. ")
        expect(page.locator("#toasts")).to_be_empty()
        assert faults == []


@pytest.mark.parametrize("status", [None, 503])
def test_failed_request_for_the_latest_error_shows_no_message(
    opened: Open, scene: Scene, status: int | None
) -> None:
    with opened("dave") as (page, _):
        page.route(
            "**/latest-error",
            lambda route: route.fulfill(status=status) if status else route.abort("connectionaborted"),
        )
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}/spec")
        assert page.evaluate(MESSAGE_AFTER_FAILED_REQUEST) == ""


def test_page_is_not_refreshed_while_it_redirects(opened: Open, scene: Scene) -> None:
    announce = """async () => {
        let fetched = 0;
        document.addEventListener("htmx:beforeRequest", () => { fetched += 1; });
        await new Promise((resolve) => {
            document.addEventListener("berth:changed", resolve, { once: true });
            document.dispatchEvent(new CustomEvent("berth:done", { detail: { message: "" } }));
        });
        return fetched;
    }"""
    address = f"/workloads/{scene.workloads['vit-baseline'].pk}"
    elsewhere = {"HX-Redirect": f"{address}#elsewhere"}  # the scripts of the page keep running
    with opened("ada") as (page, faults):
        page.goto(address)
        assert page.evaluate(announce) > 0
        page.get_by_role("link", name="Delete workload").click()
        button = page.get_by_role("dialog").get_by_role("button", name="Delete workload")
        page.route("**/delete", lambda route: route.fulfill(status=204, headers=elsewhere))
        button.click()
        expect(page).to_have_url(re.compile("#elsewhere$"))
        assert page.evaluate(announce) == 0
        assert faults == []


NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"


@pytest.mark.parametrize("has_clipboard", [pytest.param(True, marks=pytest.mark.heavy), False])
def test_id_can_be_copied_with_and_without_the_clipboard_api(
    opened: Open, scene: Scene, *, has_clipboard: bool
) -> None:
    # Browsers offer the clipboard object only on pages with TLS and on this machine.
    workload = scene.workloads["detr-long"]
    with opened("dave", permissions=["clipboard-read", "clipboard-write"]) as (page, faults):
        if not has_clipboard:
            page.add_init_script(NO_CLIPBOARD)
        page.goto(f"/workloads/{workload.pk}")
        page.get_by_role("button", name="Copy ID").click()
        expect(page.locator("#toasts")).to_have_text("Copied.")
        page.goto("/workloads")
        field = page.locator("#search")
        field.click()
        page.keyboard.press("Control+v")
        expect(field).to_have_value(str(workload.pk))
        assert faults == []
