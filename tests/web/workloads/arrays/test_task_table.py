"""Tests for the columns of the table with an array's tasks."""

import pytest

from projects.models import WorkloadArray
from tests.web.conftest import SignIn
from tests.web.workloads.arrays.test_array_pages import text


@pytest.mark.parametrize(
    ("state", "has_statuses"),
    [("completed", False), ("failed", True), ("running", True), ("all", True)],
)
def test_status_column_is_hidden_if_all_tasks_have_completed(
    sweep: WorkloadArray, sign_in: SignIn, state: str, *, has_statuses: bool
) -> None:
    table = text(sign_in("dave"), f"/arrays/{sweep.pk}?state={state}").partition('id="rows"')[2]
    assert "sweep-" in table
    assert ('<th scope="col">Status</th>' in table) is has_statuses
    assert ('<td class="why">' in table) is has_statuses
