"""Browser tests for keyboard shortcuts."""

from playwright.sync_api import expect

from tests.browser.conftest import Open


def test_keyboard_shortcuts_move_the_focus_between_rows(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/workloads")
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        links = page.locator("#rows tbody tr a.plain-link")
        first, second = (links.nth(place).inner_text() for place in (0, 1))
        for key, name in (("j", first), ("j", second), ("k", first), ("k", first)):
            page.keyboard.press(key)
            expect(page.locator("a:focus")).to_have_text(name)
        page.keyboard.press("x")
        expect(page.locator("[data-picked]")).to_have_text("1 selected")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=first, level=1)).to_be_visible()
        page.wait_for_load_state()  # scripts receive keys only once they have run
        page.keyboard.press("g")
        page.keyboard.press("q")
        expect(page.get_by_role("heading", name="Queue", level=1)).to_be_visible()
        assert faults == []


def test_letters_typed_in_fields_are_not_shortcuts(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/workloads")
        page.keyboard.press("/")
        page.keyboard.type("jgq?")
        expect(page.locator("#search")).to_have_value("jgq?")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
        expect(page.get_by_role("heading", name="Workloads", level=1)).to_be_visible()
        assert faults == []
