"""Tests for arrays on the queue page, which lists the queued tasks of an array as one row."""

import csv
import io
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from projects.models import Phase, Workload, WorkloadArray
from scheduler.models import Reservation
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed
from tests.web.queue.test_hidden_queue import pages
from tests.web.queue.test_queue_page import ADDRESS, submit_array

DASH = "\N{EN DASH}"


def queue_array(cast: Cast, positions: list[int], name: str = "sweep", **values: Any) -> WorkloadArray:
    """Queue the tasks of an array at these positions, in the order of their indexes."""
    array = submit_array(cast, name, len(positions))
    tasks = Workload.objects.filter(array=array).order_by("array_index")
    for position, task in zip(positions, tasks, strict=True):
        starts = make.ago(hours=-position).isoformat()
        explanation = {"pool": "local", "queue_position": position, "expected_start": starts}
        update = {"reason": "ProjectLimit", "explanation": explanation, "held": False, **values}
        Workload.objects.filter(pk=task.pk).update(**update)
    return array


def queue_alone(cast: Cast, name: str, position: int, gpus: int = 1) -> None:
    explanation = {"pool": "local", "queue_position": position}
    make.workload(cast.vision, name, replicas=gpus, reason="ProjectLimit", explanation=explanation)


def listed(client: Client, query: str = "") -> list[str]:
    """Return the position, the name and the number of tasks of every row."""
    page = client.get(f"{ADDRESS}{query}").content.decode()
    rows = page.partition("</thead>")[2].partition("</table>")[0].split("</tr>")
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)[1:3] for row in rows]
    hidden = re.compile(r"<div.*</div>|<span class=.sub secondary.*")
    texts = [[hidden.sub("", cell) for cell in row] for row in cells]
    return [" ".join(re.sub(r"<[^>]+>", " ", " ".join(row)).split()) for row in texts if row]


@pytest.mark.parametrize(
    "query", ["", "&sort=-gpus", "&sort=name", "&sort=-expected", "&sort=-position", "&search=sweep",
              "&project=vision", "&reason=ProjectLimit", "&search=vision&sort=-priority"],
)  # fmt: skip
def test_array_is_one_row_regardless_of_order_and_filters(query: str, cast: Cast, sign_in: SignIn) -> None:
    array = queue_array(cast, [1, 2, 4], gpu_milli_min=1000)
    queue_alone(cast, "between", 3)
    queue_alone(cast, "last", 5)
    client = sign_in("dave")
    rows = listed(client, query)
    assert f"1{DASH}2, 4 sweep 3 tasks, 0 to 2" in rows
    others = [] if query == "&search=sweep" else ["3 between", "5 last"]
    assert sorted(rows) == sorted([*others, f"1{DASH}2, 4 sweep 3 tasks, 0 to 2"])
    page = client.get(f"{ADDRESS}{query}").content.decode()
    assert page.count('data-label="Positions"') == 1
    assert f'href="/arrays/{array.pk}?state=pending">sweep</a>' in page
    listed_gpus = 3 if query == "&search=sweep" else 5
    total = f"{len(rows)} of 3 workloads, {listed_gpus} of 5 GPUs requested, 0 free."
    assert (total if "search" in query or "reason" in query or "project" in query
            else "3 workloads, 5 GPUs requested, 0 free.") in page  # fmt: skip


@pytest.mark.heavy
def test_waiting_tasks_are_counted_only_if_they_match_the_filters(cast: Cast, sign_in: SignIn) -> None:
    array = queue_array(cast, [1, 2, 3])
    Workload.objects.filter(array=array, array_index__gt=0).update(held=True, reason="", explanation=None)
    queue_alone(cast, "alone", 2)
    make.workload(cast.vision, "huge", reason="Unschedulable", pools=["local"])
    client, held, never = sign_in("dave"), "2 array tasks wait for", "1 pending workload can never start"
    for query, has_held, has_never in (
        ("", True, True), ("&search=sweep", True, False), ("&search=huge", False, True),
        ("&project=vision", True, True), ("&reason=ProjectLimit", False, False),
    ):  # fmt: skip
        page = client.get(f"{ADDRESS}{query}").content.decode()
        assert (held in page, never in page) == (has_held, has_never), query


def test_array_is_sorted_by_the_total_gpus_of_its_queued_tasks(cast: Cast, sign_in: SignIn) -> None:
    queue_alone(cast, "two", 1, 2)
    queue_array(cast, [2, 4, 5], gpu_milli_min=1000)
    queue_alone(cast, "also-two", 3, 2)
    queue_alone(cast, "four", 6, 4)
    client = sign_in("dave")
    rows = [row.split()[-1] if "sweep" not in row else "sweep" for row in listed(client, "&sort=-gpus")]
    assert rows == ["four", "sweep", "two", "also-two"], "equal requests are in queue order"
    page = client.get(ADDRESS).content.decode()
    assert 'data-label="GPUs">3<' in page and "1 per task" in page


def test_array_row_counts_tasks_with_other_pending_reasons(cast: Cast, sign_in: SignIn) -> None:
    array = queue_array(cast, [1, 2, 3, 4])
    tasks = Workload.objects.filter(array=array)
    tasks.filter(array_index__in=(2, 3)).update(reason="Backoff")
    tasks.filter(array_index=1).update(reason="WaitingForCapacity")
    client = sign_in("dave")
    page = client.get(ADDRESS).content.decode()
    assert re.findall(r'<span class="sub">(\d task[^<]*: [^<]*)', page) == [
        "1 task: waiting for capacity",
        "2 tasks: restart delay",
    ]
    assert client.get(ADDRESS).context["reasons"] == [("ProjectLimit", 1)], "an array counts once"
    assert listed(client, "&reason=Backoff") == [f"3{DASH}4 sweep 2 tasks, 2 to 3"]
    assert listed(client, "&reason=WaitingForCapacity") == ["2 sweep-1"], "a single task has its own name"


def test_array_with_a_reserved_task_shows_the_positions_of_its_other_tasks(
    cast: Cast, sign_in: SignIn
) -> None:
    array = queue_array(cast, [1, 1, 2])
    Workload.objects.filter(array=array, array_index=0).update(phase=Phase.RESERVED, pool=cast.pool)
    client = sign_in("dave")
    assert listed(client) == [f"reserved 1{DASH}2 sweep 3 tasks, 0 to 2"]
    assert "2 tasks: project limit" in client.get(ADDRESS).content.decode()


def reserve_first_task(cast: Cast, array: WorkloadArray, minutes: int) -> datetime:
    """Reserve a booting node for the first task, and return the time when the node is ready."""
    task = Workload.objects.get(array=array, array_index=0)
    Workload.objects.filter(pk=task.pk).update(phase=Phase.RESERVED, pool=cast.pool)
    ready_at = make.ago(minutes=-minutes)
    node = make.node(cast.pool, 3, state="booting", ready_at=ready_at)
    Reservation.objects.create(workload=task, role="worker", index=0, node=node, devices=[0])
    return ready_at


def test_array_with_a_reserved_task_is_expected_to_start_when_its_node_has_booted(
    cast: Cast, sign_in: SignIn
) -> None:
    ready_at = reserve_first_task(cast, queue_array(cast, [5, 6, 7]), minutes=4)
    page = sign_in("dave").get(ADDRESS)
    [(row, *_)] = page.context["rows"]
    first, last = row.queued_tasks.first_start, row.queued_tasks.last_start
    assert first == ready_at
    assert timedelta(hours=6) < last - first < timedelta(hours=7), "the last task is not reserved"
    cell = page.content.decode().partition('data-label="Expected start">')[2].partition("</td>")[0]
    assert f'datetime="{ready_at.isoformat()[:16]}' in cell.partition("</time>")[0]


@pytest.mark.parametrize(
    ("sort", "names"),
    [("expected", "boots sweep middle late unknown"), ("-expected", "late middle sweep boots unknown")],
)
def test_array_is_sorted_by_the_first_expected_start_of_its_tasks(
    sort: str, names: str, cast: Cast, sign_in: SignIn
) -> None:
    queue_array(cast, [7, 8], "late")
    queue_array(cast, [1, 2], "unknown", explanation={"pool": "local"})
    array = queue_array(cast, [3, 4], "sweep")
    Workload.objects.filter(array=array, array_index=0).update(
        explanation={"pool": "local", "queue_position": 3}
    )
    queue_array(cast, [6, 5], "middle")
    reserve_first_task(cast, queue_array(cast, [9, 10], "boots"), minutes=4)
    context: Any = sign_in("dave").get(f"{ADDRESS}&sort={sort}").context
    assert [row.title for row, *_ in context["rows"]] == names.split()


@pytest.mark.heavy
def test_array_is_listed_on_one_page_only(cast: Cast, sign_in: SignIn) -> None:
    queue_array(cast, [1, *range(3, 60, 2), 90])
    for position in range(2, 120, 2):
        queue_alone(cast, f"w-{position:03}", position)
    seen = [name for page in pages(sign_in("dave"), ADDRESS) for name in page]
    assert len([row for row in seen if "sweep" in row]) == 1
    assert len(seen) == 60
    assert seen[0] == "1, …, 90 sweep"


def test_export_has_a_row_for_each_task(cast: Cast, sign_in: SignIn) -> None:
    queue_array(cast, [1, 3])
    queue_alone(cast, "between", 2, 4)
    for sort, names in (("", "sweep-0 between sweep-1"), ("&sort=-gpus", "between sweep-0 sweep-1")):
        text = streamed(sign_in("dave").get(f"{ADDRESS}{sort}&format=csv")).decode()
        assert [row["Workload"] for row in csv.DictReader(io.StringIO(text))] == names.split()


@pytest.mark.heavy
def test_statement_count_does_not_depend_on_the_number_of_arrays(cast: Cast, sign_in: SignIn) -> None:
    client, counts = sign_in("dave"), []
    queue_array(cast, [1, 2])
    client.get(ADDRESS)  # loads the roles of the user, once
    for _ in range(2):
        with CaptureQueriesContext(connection) as statements:
            for address in (ADDRESS, "/queue", f"{ADDRESS}&sort=-gpus", f"{ADDRESS}&sort=expected"):
                assert client.get(address).status_code == 200
        counts.append(len(statements))
        for name, positions in () if len(counts) > 1 else (("second", [3, 4, 5]), ("third", [6, 7])):
            queue_array(cast, positions, name)
    assert counts[0] == counts[1]
