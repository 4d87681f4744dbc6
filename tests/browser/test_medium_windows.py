"""Browser tests for windows that are wider than a phone but too narrow for all columns."""

import pytest

from tests.browser.conftest import Open

MEDIUM = {"width": 1024, "height": 768}


@pytest.mark.parametrize("path", ["/queue", "/workloads", "/quotas?pool=train"])
def test_tables_fit_into_a_medium_window(opened: Open, path: str) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto(path)
        table = page.locator(".table-wrap").first
        hidden = table.evaluate("element => element.scrollWidth - element.clientWidth")
        assert hidden <= 0, f"{hidden} px of the table are hidden"
        assert faults == []


def test_notes_replace_the_hidden_columns_of_a_medium_window(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/queue")
        row = page.get_by_role("row").filter(has_text="policy-sweep")
        assert "for 5 min" in row.inner_text().replace("\N{NO-BREAK SPACE}", " ")
        assert not page.get_by_role("columnheader", name="Pending since").is_visible()
        assert faults == []
