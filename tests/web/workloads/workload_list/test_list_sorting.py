"""Tests for the sort orders of the workload list, which use the values that its rows show."""

import re
from datetime import datetime
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from projects.models import InferenceEngine, Service, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, submit_array
from tests.web.workloads.workload_list.test_workload_list import serve

ALL_RUN = "All required pods are running."


def listed(client: Client, query: str) -> list[str]:
    """Return the names of the rows on all pages, and check that the links back show the same pages."""
    address, cursor = f"/workloads?{query}", ""
    pages: list[Any] = []
    while not pages or cursor:
        pages.append(client.get(f"{address}&cursor={cursor}").context["slice"])
        cursor = pages[-1].next or ""
    for before, after in pairwise(pages):
        previous = client.get(f"{address}&cursor={after.previous}").context["slice"]
        assert [row.pk for row in previous.rows] == [row.pk for row in before.rows]
    return [row.array.name if row.array else row.name for shown in pages for row in shown.rows]


def create_service(cast: Cast, name: str, *healthy: bool, gpus: int = 1, engine_gpus: int = 0) -> Workload:
    """Create a running service with one engine per value, and an added engine if `engine_gpus` is set."""
    values: Any = {"kind": "service", "phase": "running", "message": ALL_RUN, "gpu_milli_now": gpus * 1000}
    row = make.workload(cast.vision, name, gpus=gpus, **values)
    service = Service.objects.create(workload=row, role="worker", initial_engines=1, next_number=9)
    for number, is_healthy in enumerate(healthy):
        serve(service, row, number)
        InferenceEngine.objects.filter(service=service, number=number).update(is_healthy=is_healthy)
    if engine_gpus:
        values["gpu_milli_now"] = engine_gpus * 1000
        serve(service, make.workload(cast.vision, f"{name}-e9", gpus=engine_gpus, **values), 9)
    return row


def set_tasks(array: Any, *phases: str, **values: Any) -> None:
    for index, phase in enumerate(phases):
        ended_at = make.ago() if phase in ENDED_PHASES else None
        task = Workload.objects.filter(array=array, array_index=index)
        task.update(phase=phase, held=False, ended_at=ended_at, **values)


@pytest.mark.heavy
def test_arrays_with_failed_tasks_and_degraded_services_come_before_pending_workloads(
    cast: Cast, sign_in: SignIn
) -> None:
    create_service(cast, "serves", True, True)
    create_service(cast, "degraded", True, False)
    create_service(cast, "down", False)
    make.workload(cast.vision, "runs", phase="running", message=ALL_RUN)
    make.workload(cast.vision, "never", reason="Unschedulable")
    make.workload(cast.vision, "queued")
    set_tasks(submit_array(cast, "broken", 3), "completed", "failed", "pending")
    set_tasks(submit_array(cast, "sound", 2), "completed", "running", message="1 of 2 pods running.")
    set_tasks(submit_array(cast, "waits", 2), "completed", "pending")
    for query in ("sort=attention", "state=all&sort=attention"):
        assert listed(sign_in("dave"), query) == [
            "broken", "degraded", "down", "never", "queued", "waits", "serves", "runs", "sound",
        ]  # fmt: skip
    Workload.objects.filter(array__name="broken", phase="failed").update(superseded=True)
    assert listed(sign_in("dave"), "sort=attention")[0] == "degraded", "a retry replaced the failed task"


@pytest.mark.heavy
def test_sorting_by_gpus_uses_the_totals_of_arrays_and_services(cast: Cast, sign_in: SignIn) -> None:
    create_service(cast, "chat", True, gpus=1, engine_gpus=4)
    running: Any = {"phase": "running", "message": ALL_RUN}
    make.workload(cast.vision, "three", gpus=3, gpu_milli_now=3000, **running)
    make.workload(cast.vision, "wants-nine", gpus=9)
    make.workload(cast.vision, "wants-two", gpus=2)
    make.workload(cast.vision, "ran-eight", gpus=8, phase="completed", ended_at=make.ago())
    set_tasks(submit_array(cast, "sweep", 5), *["running"] * 4, "pending", gpu_milli_now=1000)
    Workload.objects.filter(array__name="sweep", phase="pending").update(gpu_milli_now=0)
    client = sign_in("dave")
    live = ["chat", "sweep", "three", "wants-nine", "wants-two"]
    assert listed(client, "state=all&sort=-gpus") == [*live, "ran-eight"]
    assert listed(client, "state=all&sort=gpus") == [*live[::-1], "ran-eight"]
    page = client.get("/workloads?state=all&sort=-gpus").content.decode()
    cells = re.findall(r'data-label="GPUs">(.*?)</td>', page)
    shown = [float(re.sub(r"<[^>]+>", " ", cell).split()[0]) for cell in cells]
    assert shown == [5, 4, 3, 0, 0, 8]


@pytest.mark.heavy
def test_gpus_of_a_service_do_not_depend_on_the_filters(cast: Cast, sign_in: SignIn) -> None:
    create_service(cast, "chat", True, gpus=1, engine_gpus=4)
    Workload.objects.filter(name="chat").update(labels={"tier": "gold"})
    for query in ("", "?search=tier=gold", "?state=running"):
        page = sign_in("dave").get(f"/workloads{query}").content.decode()
        cell = page.partition('data-label="GPUs">')[2].partition("</td>")[0]
        assert re.sub(r"<[^>]+>", "", cell).split()[:3] == ["5", "of", "5"], query


@pytest.mark.heavy
@pytest.mark.parametrize("sort", ["-gpus", "gpus", "attention", "-state", "-evictions", "-wait", "name"])
def test_pages_of_a_sorted_list_contain_each_row_once(sort: str, cast: Cast, sign_in: SignIn) -> None:
    for number in range(52):
        phase, message = ("running", ALL_RUN) if number % 2 else ("pending", "")
        make.workload(cast.vision, f"w{number:02}", gpus=1 + number % 3, phase=phase, message=message)
    array = submit_array(cast, "sweep", 2)
    set_tasks(array, "failed", "running", preemptions=2)
    names = listed(sign_in("dave"), f"sort={sort}&columns=state,gpus,evictions,wait")
    assert sorted(names) == ["sweep", *(f"w{number:02}" for number in range(52))]
    if sort in ("attention", "-evictions"):
        assert names[0] == "sweep", "all of its tasks count"


@pytest.mark.heavy
@pytest.mark.parametrize("sort", ["-gpus", "attention", "-state"])
def test_statement_count_does_not_depend_on_the_number_of_rows(
    sort: str, cast: Cast, sign_in: SignIn
) -> None:
    client, counts = sign_in("dave"), []
    for number in (1, 6):
        for place in range(number):
            create_service(cast, f"chat-{number}-{place}", True, False, engine_gpus=1)
            set_tasks(submit_array(cast, f"sweep-{number}-{place}", 3), "failed", "running", "pending")
        with CaptureQueriesContext(connection) as statements:
            assert client.get(f"/workloads?sort={sort}").status_code == 200
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_state_column_is_sorted_by_the_displayed_state(cast: Cast, sign_in: SignIn) -> None:
    create_service(cast, "degraded", True, False)
    make.workload(cast.vision, "never", reason="Unschedulable")
    make.workload(cast.vision, "queued")
    make.workload(cast.vision, "runs", phase="running", message=ALL_RUN)
    set_tasks(submit_array(cast, "sweep", 2), "completed", "running")
    client = sign_in("dave")
    assert listed(client, "sort=state") == ["degraded", "queued", "runs", "sweep", "never"]
    page = client.get("/workloads?sort=state").content.decode()
    titles = re.findall(r'<span class="chip[^"]*">([^<]+)<', page)
    assert titles == ["Partly serving", "Pending", "Running", "Running", "Unschedulable"]


def test_array_keeps_its_position_after_its_first_task_is_retried(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "sweep", 2)
    set_tasks(array, "failed", "completed")
    first = Workload.objects.get(array=array, array_index=0)
    make.workload(cast.vision, "later", submitted_at=make.ago(hours=1))
    Workload.objects.filter(array=array).update(submitted_at=make.ago(hours=2))
    Workload.objects.filter(pk=first.pk).update(superseded=True)
    retry = make.workload(cast.vision, "retry", submitted_at=make.ago(minutes=1))
    Workload.objects.filter(pk=retry.pk).update(array=array, array_index=0, attempt=2)
    assert listed(sign_in("dave"), "state=all") == ["later", "sweep"]


def test_array_row_sums_the_evictions_and_runs_of_its_tasks(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "sweep", 2)
    set_tasks(array, "running", "running", preemptions=2, run=3)
    type(array).objects.filter(pk=array.pk).update(submitted_at=make.ago(minutes=30))
    Workload.objects.filter(array=array, array_index=1).update(first_started_at=make.ago(minutes=20))
    page = sign_in("dave").get("/workloads?columns=wait,runs,evictions&sort=-wait").content.decode()
    for label, value in (("Evictions", "4"), ("Runs", "6"), ("Wait until start", "10 min")):
        assert f'data-label="{label}">{value}</td>' in page, label


def test_array_row_includes_the_earlier_attempts_of_retried_tasks(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "sweep", 2)
    WorkloadArray.objects.filter(pk=array.pk).update(submitted_at=make.ago(minutes=30))
    set_tasks(array, "failed", "pending", preemptions=2, run=3)
    first_start = make.ago(minutes=20)
    first = Workload.objects.filter(array=array, array_index=0)
    first.update(superseded=True, first_started_at=first_start)
    retry = make.workload(cast.vision, "retry")
    Workload.objects.filter(pk=retry.pk).update(array=array, array_index=0, attempt=2)
    make.workload(cast.vision, "other", run=5, preemptions=3, phase="running", first_started_at=make.ago())
    client = sign_in("dave")
    page = client.get("/workloads?columns=wait,runs,evictions,started").content.decode()
    row = page.partition(f'id="a-{array.pk}"')[2].partition("</tr>")[0]
    for label, value in (("Evictions", "4"), ("Runs", "6"), ("Wait until start", "10 min")):
        assert f'data-label="{label}">{value}</td>' in row, label
    started = re.findall(r'data-label="Started"><time datetime="([^"]+)"', row)
    assert started == [first_start.isoformat()]
    for sort, names in (("-runs", "sweep other"), ("-evictions", "sweep other"), ("-wait", "other sweep")):
        assert listed(client, f"sort={sort}") == names.split(), sort


@pytest.mark.heavy
@pytest.mark.parametrize(("sort", "step"), [("since", 1), ("-since", -1)])
def test_arrays_are_sorted_by_how_long_they_have_been_in_their_state(
    sort: str, step: int, cast: Cast, sign_in: SignIn
) -> None:
    for name, minutes in (("first", 90), ("third", 50), ("fifth", 30), ("last", 1)):
        make.workload(cast.vision, name, phase="running", since=make.ago(minutes=minutes))
    arrays = {name: submit_array(cast, name, 2) for name in ("runs", "waits", "ended")}
    set_tasks(arrays["runs"], "completed", "running", since=make.ago(), first_started_at=make.ago(minutes=70))
    set_tasks(arrays["waits"], "completed", "pending", first_started_at=make.ago(minutes=80))
    tasks = Workload.objects.filter(array=arrays["waits"])
    tasks.update(since=make.ago(minutes=40))
    tasks.filter(array_index=1).update(since=make.ago(), first_started_at=None)
    set_tasks(arrays["ended"], "completed", "completed", since=make.ago(minutes=95))
    ended = WorkloadArray.objects.filter(pk=arrays["ended"].pk)
    ended.update(state="completed", ended_at=make.ago(minutes=20))
    client = sign_in("dave")
    names = ["first", "runs", "third", "waits", "fifth", "ended", "last"]
    assert listed(client, f"state=all&sort={sort}") == names[::step]
    page = client.get(f"/workloads?state=all&columns=since&sort={sort}").content.decode()
    times = re.findall(r'data-label="Since"><time datetime="([^"]+)"', page)
    ages = [round((make.ago() - datetime.fromisoformat(each)).total_seconds() / 60) for each in times]
    assert ages == [90, 70, 50, 40, 30, 20, 1][::step]


def test_service_state_does_not_depend_on_the_selected_columns(cast: Cast, sign_in: SignIn) -> None:
    create_service(cast, "degraded", True, False)
    page = sign_in("dave").get("/workloads?columns=state,gpus").content.decode()
    assert '<span class="chip warn">Partly serving</span>' in page


def test_sort_order_without_its_own_column_can_be_cleared(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "runs", phase="running", message=ALL_RUN)
    client = sign_in("dave")
    page = client.get("/workloads?sort=attention&state=all").content.decode()
    (address,) = re.findall(r'id="sort-note" href="([^"]+)"', page)
    assert address == "?state=all" and 'id="sort-note"' not in client.get("/workloads").content.decode()


def test_first_click_sorts_names_ascending_and_numbers_descending(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "runs", phase="running", message=ALL_RUN)
    client = sign_in("dave")

    def next_sorts(query: str = "") -> dict[str, str]:
        head = (
            client.get(f"/workloads{query}").content.decode().partition("<thead>")[2].partition("</thead>")[0]
        )
        links = re.findall(r'href="\?([^"]*)"[^>]*>(\w+)', head)
        return {title: parse_qs(query)["sort"][0] for query, title in links}

    expected = {"Workload": "name", "State": "state", "GPUs": "-gpus", "Submitted": "submitted"}
    assert next_sorts() == expected
    assert next_sorts("?sort=name")["Workload"] == "-name"
    assert next_sorts("?sort=-name")["Workload"] == "name"
