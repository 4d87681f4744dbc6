"""Browser tests for the filters of lists on phones."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, open_settled

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize(
    ("path", "filtered"),
    [
        ("/evictions", "/evictions?period=7d"),
        ("/usage", "/usage?span=7d"),
    ],
)
def test_filters_button_counts_only_filters_that_differ_from_the_default(
    opened: Open, scene: Scene, path: str, filtered: str
) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        open_settled(page, path)
        expect(page.locator(".filters-button")).to_have_text("Filters")
        open_settled(page, filtered)
        expect(page.locator(".filters-button")).to_have_text("Filters (1)")
        assert faults == []


def test_date_filters_are_side_by_side_on_a_phone(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        open_settled(page, "/activity")
        page.locator(".filters-button").click()
        since, until = (page.locator(f"#f-{name}").bounding_box() for name in ("since", "until"))
        assert since and until and since["y"] == until["y"] and since["x"] < until["x"]
        assert faults == []
