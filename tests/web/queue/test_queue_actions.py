"""Tests for the actions on the selected rows of the queue page."""

import re

import pytest
from django.test import Client

from projects.models import Phase, Workload, WorkloadArray
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.queue.test_hidden_queue import queue
from tests.web.queue.test_queue_page import ADDRESS, submit_array


def boxes(client: Client) -> dict[str, str]:
    """Return the attributes of every checkbox in the rows, keyed by the name of the row."""
    page = client.get(ADDRESS).content.decode()
    inputs = re.findall(r'<input type="checkbox" name="[aw]"([^>]*) aria-label="Select ([^"]*)">', page)
    return {name: attributes for attributes, name in inputs}


@pytest.fixture
def array(cast: Cast) -> WorkloadArray:
    result = submit_array(cast, "sweep", 2)
    for position, task in enumerate(Workload.objects.filter(array=result).order_by("array_index"), start=4):
        explanation = {"pool": "local", "queue_position": position}
        Workload.objects.filter(pk=task.pk).update(held=False, explanation=explanation)
    return result


def test_rows_offer_the_actions_that_the_user_may_run(
    cast: Cast, sign_in: SignIn, array: WorkloadArray
) -> None:
    own = queue(cast.vision, "own", 1)
    Workload.objects.filter(pk=own.pk).update(submitted_by=cast.dave.user)
    make.workload(cast.vision, "holds", by=cast.dave.user, phase=Phase.RESERVED, pools=["local"])
    queue(cast.ads, "theirs", 3)
    rows = boxes(sign_in("dave"))
    assert set(rows) == {"own", "holds", "sweep"}, "a hidden workload has no checkbox"
    assert 'data-actions="suspend cancel"' in rows["own"] and "data-editable" in rows["own"]
    assert 'data-actions="suspend cancel"' in rows["holds"] and "data-editable" not in rows["holds"]
    assert f'value="{array.pk}"' in rows["sweep"] and "data-editable" not in rows["sweep"]
    of_viewer = boxes(sign_in("erin"))
    assert 'data-actions=""' in of_viewer["own"] and "data-denied" in of_viewer["own"]
    assert "data-editable" not in of_viewer["own"]


def test_checkbox_of_the_only_queued_task_selects_the_task_rather_than_the_array(
    cast: Cast, sign_in: SignIn, array: WorkloadArray
) -> None:
    Workload.objects.filter(array=array, array_index=1).update(phase=Phase.RUNNING)
    task = Workload.objects.get(array=array, array_index=0)
    assert f'value="{task.pk}"' in boxes(sign_in("dave"))[task.name]
