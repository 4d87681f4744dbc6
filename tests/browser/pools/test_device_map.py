"""Browser tests for the device map of the overview."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open


@pytest.mark.heavy
def test_hovering_over_a_device_outlines_all_devices_of_its_workload(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/")
        devices, name = page.locator(".maps .device"), page.locator(".maps > .readout")
        lit = page.locator(".maps .device.lit")
        own = page.locator(".maps .device[aria-label*='ads/ctr-nightly']")
        own.first.hover()
        expect(name).to_have_text("GPU 0: ads/ctr-nightly-worker-0")
        expect(lit).to_have_count(4)
        assert lit.evaluate_all("all => all.map(each => each.ariaLabel)") == own.evaluate_all(
            "all => all.map(each => each.ariaLabel)"
        )
        expect(name).to_be_in_viewport(ratio=1)
        devices.filter(has_not=page.locator("rect")).first.hover()
        expect(name).to_contain_text("free")
        expect(lit).to_have_count(0)
        page.get_by_role("heading", name="Overview").hover()
        expect(name).to_be_hidden()
        page.get_by_role("link", name="train-2").focus()
        page.keyboard.press("Tab")
        expect(own.first).to_be_focused()
        expect(lit).to_have_count(4)
        assert faults == []


@pytest.mark.heavy
def test_device_names_stay_inside_the_window(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/")
        name, devices = page.locator(".maps > .readout.on"), page.locator(".maps .device")
        for place in range(devices.count()):
            devices.nth(place).hover()
            expect(name).to_have_text(devices.nth(place).get_attribute("aria-label") or "")
            expect(name).to_be_in_viewport(ratio=1)
        assert faults == []
