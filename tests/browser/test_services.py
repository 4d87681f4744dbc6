"""Browser tests for the service page and its autoscaler settings."""

import re

import pytest
from playwright.sync_api import expect

from projects.models import Autoscaler, Service
from tests.browser.conftest import Open
from tests.browser.data.inference_service import create_service
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults


@pytest.mark.heavy
def test_autoscaler_settings_are_previewed_and_then_saved(opened: Open, scene: Scene) -> None:
    workload = create_service(scene)
    Service.objects.get(workload=workload).points.filter(reporting=0).delete()
    with opened("dave") as (page, faults):
        page.goto(f"/services/{workload.pk}")
        expect(page.locator(".page-head")).to_contain_text("4 of 6 serving: 1 waiting for capacity")
        page.locator("#service-scaler summary").click()
        page.get_by_role("link", name="Edit autoscaler").click()
        page.get_by_label("Token usage above (%)").fill("60")
        page.get_by_label("Max engines").fill("6")
        page.get_by_role("button", name="Preview settings").click()
        preview = page.locator("#autoscaler-preview")
        expect(preview).to_contain_text(
            re.compile(r"The recorded metrics would trigger \d+ scale-outs? and \d+ scale-ins?")
        )
        preview.get_by_text("Data table", exact=True).click()
        decisions = preview.get_by_role("table", name="Scaling decisions")
        expect(decisions.get_by_role("row").nth(1)).to_contain_text("Conditions met")
        assert accessibility_faults(page) == []
        page.get_by_label("Max engines").fill("0")
        page.get_by_role("button", name="Save settings").click()
        expect(page.locator("#scaler_max_engines_error")).to_contain_text("a whole number from 1")
        page.get_by_label("Max engines").fill("6")
        page.get_by_role("button", name="Save settings").click()
        expect(page.get_by_text("Autoscaler settings for")).to_be_visible()
        assert [fault for fault in faults if "422" not in fault] == []
    settings = Autoscaler.objects.get().settings
    assert settings["max_engines"] == 6
    assert settings["scale_out_policy"]["token_usage_threshold"] == 0.6


@pytest.mark.heavy
def test_new_service_form_shows_service_fields(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/services")
        page.get_by_role("link", name="Create service").first.click()
        page.get_by_label("Min engines").fill("2")
        expect(page.locator("#document")).to_have_value(re.compile("min_engines: 2"))
        page.get_by_label("Router", exact=True).select_option("SGLang router")
        expect(page.locator("#document")).to_have_value(re.compile("kind: sglang"))
        assert faults == []
