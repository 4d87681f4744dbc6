"""Browser tests for windows that are wider than a phone but too narrow for all columns."""

import re

import pytest

from tests.browser.conftest import Open

MEDIUM = {"width": 1024, "height": 768}


@pytest.mark.parametrize(
    "path",
    [
        "/queue",
        "/workloads",
        "/quotas?pool=train",
        "/fair-share?pool=train",
        "/node-pools",
        "/usage",
    ],
)
def test_tables_fit_into_a_medium_window(opened: Open, path: str) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto(path)
        hidden = "tables => tables.map(table => table.scrollWidth - table.clientWidth)"
        widths = page.locator(".table-wrap").evaluate_all(hidden)
        assert widths and max(widths) <= 0, f"hidden pixels of the tables: {widths}"
        assert faults == []


def test_notes_replace_the_hidden_columns_of_a_medium_window(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/queue")
        row = page.get_by_role("row").filter(has_text="policy-sweep")
        assert re.search(r"\bfor [45]\smin", row.inner_text())
        assert not page.get_by_role("columnheader", name="Pending since").is_visible()
        assert faults == []
