"""Browser tests for the rows of the submission form."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open


@pytest.mark.heavy
@pytest.mark.parametrize("width", [1024, 1440])
def test_required_and_preferred_topology_share_a_row(opened: Open, width: int) -> None:
    with opened("dave", viewport={"width": width, "height": 900}) as (page, faults):
        page.goto("/submit?kind=train")
        page.locator("#fields details").evaluate_all("all => all.forEach(each => { each.open = true; })")
        for path in ("topology", "roles-0-topology"):
            fields = [page.locator(f"#w-f-{path}-{key}") for key in ("required", "preferred")]
            expect(fields[0]).to_be_visible()
            first, second = (field.evaluate("field => field.offsetTop") for field in fields)
            assert first == second, path
        assert faults == []
