"""Tests for filters, columns and saved views of the workload list."""

import csv
import io
import re
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from projects.models import InferenceEngine, SavedView, Service, Workload, WorkloadArray
from projects.services import arrays
from projects.web.workloads.listing.filters import StateCount
from projects.web.workloads.listing.utilization import common_last_measurement
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn, streamed
from tests.web.workloads.workload_list.test_bulk_actions import array_of_two, create_three_workloads

HTMX = {"HX-Request": "true"}


@pytest.mark.heavy
def test_query_parameter_selects_the_list_columns(cast: Cast, sign_in: SignIn) -> None:
    create_three_workloads(cast)
    usual = sign_in("erin").get("/workloads").content.decode()
    assert "Status" in usual and ">Department<" not in usual.partition("<table")[2]
    shaped = sign_in("erin").get("/workloads?columns=gpus&columns=department").content.decode()
    table = shaped.partition("<table")[2]
    assert "research" in table and "Status" not in table
    assert "chosen-columns" in shaped and "chosen-columns" not in usual, "their status has a minimum width"
    assert "Status" in sign_in("erin").get("/workloads?columns=none").content.decode()


def test_saved_view_is_private_and_restores_the_query(cast: Cast, sign_in: SignIn) -> None:
    erin = sign_in("erin")
    dialog = erin.get(
        "/workloads/views/new?state=ended&columns=gpus&cursor=abc", headers=HTMX
    ).content.decode()
    assert "state=ended&amp;columns=gpus" in dialog
    saved = {"name": "Done", "query": "state=ended&columns=gpus&cursor=abc"}
    assert (
        erin.post("/workloads/views/new", saved, headers=HTMX).headers["HX-Redirect"].endswith("columns=gpus")
    )
    view = SavedView.objects.get()
    assert (view.user, view.query) == (cast.erin.user, "state=ended&columns=gpus")
    assert "Done" in erin.get("/workloads").content.decode()
    assert "Done" not in sign_in("dave").get("/workloads").content.decode()
    assert sign_in("dave").post(f"/workloads/views/{view.pk}/delete").status_code == 404
    erin.post("/workloads/views/new", {"name": "Done", "query": "state=all"}, headers=HTMX)
    assert SavedView.objects.get().query == "state=all"
    assert erin.post(f"/workloads/views/{view.pk}/delete", headers=HTMX).status_code == 204
    assert not SavedView.objects.exists()


@pytest.mark.heavy
def test_saved_view_requires_a_name(sign_in: SignIn) -> None:
    answer = sign_in("erin").post("/workloads/views/new", {"name": " ", "query": ""}, headers=HTMX)
    assert answer.status_code == 422


@pytest.mark.heavy
def test_list_shows_when_a_running_workload_reaches_its_maximum_runtime(cast: Cast, sign_in: SignIn) -> None:
    started = make.ago(hours=1)
    running: dict[str, Any] = {"phase": "running", "run": 1, "started_at": started}
    make.workload(cast.vision, "bounded", max_runtime=7200, message="2 of 2 pods running.", **running)
    make.workload(cast.vision, "unbounded", message="2 of 2 pods running.", **running)
    make.workload(cast.vision, "degraded", max_runtime=7200, message="1 of 2 pods running.", **running)
    make.workload(cast.vision, "waits", max_runtime=7200)
    page = sign_in("dave").get("/workloads").content.decode()
    rows = {
        name: next(row for row in page.split("<tr")[1:] if f">{name}</a>" in row)
        for name in ("bounded", "unbounded", "degraded", "waits")
    }
    assert [name for name, row in rows.items() if "Ends by" in row] == ["bounded"]
    end = rows["bounded"].partition("Ends by")[2].partition('datetime="')[2].partition('"')[0]
    assert datetime.fromisoformat(end) == started + timedelta(hours=2)
    assert "1 of 2 pods running" in rows["degraded"]


def serve(service: Service, workload: Workload, number: int) -> None:
    InferenceEngine.objects.create(
        service=service,
        workload=workload,
        number=number,
        origin="initial",
        state="ACTIVE",
        is_healthy=True,
        since=timezone.now(),
        created_at=timezone.now(),
    )


@pytest.mark.heavy
def test_running_workload_rows_describe_their_activity(cast: Cast, sign_in: SignIn) -> None:
    server = make.workload(
        cast.vision, "server", kind="service", phase="running", message="1 of 1 pods running."
    )
    service = Service.objects.create(workload=server, role="worker", initial_engines=1, next_number=2)
    engine = make.workload(
        cast.vision, "extra", kind="service", phase="running", message="1 of 1 pods running."
    )
    for number, row in enumerate((server, engine)):
        serve(service, row, number)
    make.workload(
        cast.vision,
        "notebook",
        kind="interactive",
        phase="running",
        idle_timeout=7200,
        message="1 of 1 pods running.",
    )
    client = sign_in("dave")
    text = client.get(f"/workloads?open={server.pk}").content.decode()
    for sentence in (
        "Stops when idle for 2 h",
        "2 of 2 engines serving",
        "Engine of server: serving",
        'data-style="lasting"',
    ):
        assert sentence in text, sentence


@pytest.mark.heavy
def test_running_workload_rows_show_the_nodes_of_their_pods(cast: Cast, sign_in: SignIn) -> None:
    nodes = [make.node(cast.pool, gpus=2) for _ in range(5)]
    all_run = "All required pods are running."
    for name, count in (("one", 1), ("many", 5)):
        workload = make.workload(cast.vision, name, replicas=count, phase="running", message=all_run)
        for node in nodes[:count]:
            make.place(workload, node, [0 if name == "one" else 1])
    text = sign_in("dave").get("/workloads").content.decode()
    assert f"1 pod on {nodes[0].name}<" in text
    names = ", ".join(sorted(node.name for node in nodes)[:3])
    assert f"5 pods on {names} and 2 other nodes<" in text


@pytest.mark.heavy
def test_workload_list_can_show_failing_and_pending_workloads_first(cast: Cast, sign_in: SignIn) -> None:
    all_run = "All required pods are running."
    for name, phase, message in (
        ("ended", "completed", "All pods succeeded."), ("running", "running", all_run),
        ("partial", "running", "1 of 3 pods running."), ("whole", "running", "3 of 3 pods running."),
        ("queued", "pending", ""), ("failed", "failed", "Exit code 1."),
    ):  # fmt: skip
        make.workload(cast.vision, name, phase=phase, message=message)
    client = sign_in("dave")
    assert "?sort=attention" in client.get("/workloads").content.decode()
    rows = client.get("/workloads?state=all&sort=attention").context["slice"].rows
    assert [row.name for row in rows][:3] == ["failed", "partial", "queued"]
    assert {row.name for row in rows[3:5]} == {"running", "whole"}


def test_failed_workloads_and_arrays_have_a_tab(cast: Cast, sign_in: SignIn) -> None:
    for phase in ("failed", "completed", "running"):
        make.workload(cast.vision, phase, phase=phase)
    make.workload(cast.vision, "again", preemptions=2)
    array_of_two(cast, "broken", "failed", "completed")
    array_of_two(cast, "active", "failed", "running")
    client = sign_in("dave")

    def rows(state: str) -> set[str]:
        listed = client.get("/workloads", {"state": state}).context["slice"].rows
        return {row.array.name if row.array else row.name for row in listed}

    counts = {each.state: each.count for each in client.get("/workloads").context["states"]}
    assert (counts["ended"], counts["failed"], counts["live"], counts["all"]) == (3, 2, 3, 6)
    assert "completed" not in counts
    assert rows("failed") == {"failed", "broken"} and rows("completed") == {"completed"}
    assert rows("evicted") == {"again"} and rows("cancelled") == set()
    make.workload(cast.vision, "earlier", phase="failed", ended_at=make.ago(hours=30))
    assert rows("failed") == {"failed", "broken", "earlier"}
    recent = client.get("/workloads?state=failed&ended=24h")
    assert {row.name for row in recent.context["slice"].rows} == {"failed", "broken-0"}
    assert 'name="ended"' in recent.content.decode()
    Workload.objects.filter(name="earlier").delete()
    file = streamed(client.get("/workloads?format=csv&state=failed")).decode()
    assert {line.split(",")[0] for line in file.splitlines()[1:]} == {"failed", "broken-0", "active-0"}


def test_statement_count_does_not_depend_on_the_number_of_workloads(cast: Cast, sign_in: SignIn) -> None:
    client, counts = sign_in("dave"), []
    for number in (1, 20):
        for place in range(number):
            name = f"s{number}-{place}"
            row = make.workload(cast.vision, name, kind="service", phase="running", idle_timeout=60)
            service = Service.objects.create(workload=row, role="worker", initial_engines=1, next_number=1)
            serve(service, row, 0)
        with CaptureQueriesContext(connection) as statements:
            assert client.get("/workloads?sort=attention").status_code == 200
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_pending_rows_show_their_expected_start(cast: Cast, sign_in: SignIn) -> None:
    start = timezone.now() + timedelta(minutes=80)
    explanation = {"queue_position": 2, "pool": "local", "expected_start": start.isoformat()}
    make.workload(cast.vision, "next", explanation=explanation, reason="WaitingForCapacity")
    make.workload(cast.vision, "later", explanation={**explanation, "expected_start": None})
    text = sign_in("dave").get("/workloads").content.decode()
    starts = re.findall(r'Position (\d)</span> <span>(\w+) <time datetime="([^"]+)"', text)
    assert starts == [("2", "starts", start.isoformat())]
    assert text.count("Position 2<") == 2


def test_last_measurement_is_shared_only_by_rows_measured_at_about_the_same_time() -> None:
    now = timezone.now()
    rows: list[Any] = [SimpleNamespace(measured_at=now - timedelta(seconds=n)) for n in (50, 10)]
    assert common_last_measurement(rows) == rows[0].measured_at
    assert common_last_measurement([*rows, SimpleNamespace(measured_at=None)]) == rows[0].measured_at  # type: ignore[list-item]
    assert common_last_measurement(rows[:1]) is None
    earlier: Any = SimpleNamespace(measured_at=now - timedelta(hours=1))
    assert common_last_measurement([*rows, earlier]) is None


def test_pending_tab_states_how_many_workloads_have_reserved_resources(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "waiting")
    client = sign_in("dave")
    assert "of them reserved" not in client.get("/workloads").content.decode()
    make.workload(cast.vision, "reserved", phase="reserved")
    page = client.get("/workloads").content.decode()
    assert 'title="2 workloads, 1 of them reserved">Pending <span class="faint">2</span>' in page


def test_workload_rows_can_be_compact(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "train", phase="running")
    client = sign_in("dave")
    table = '<table class="stacked workload-rows{}" data-open-rows>'
    assert table.format("") in client.get("/workloads").content.decode()
    page = client.get("/workloads?compact=1").content.decode()
    assert table.format(" compact") in page and 'name="compact" value="1" form="filters" checked' in page


@pytest.mark.heavy
def test_unschedulable_workloads_have_a_red_badge_and_a_tab(cast: Cast, sign_in: SignIn) -> None:
    waiting = make.workload(cast.vision, "waiting", reason="WaitingForCapacity")
    client = sign_in("dave")
    titles = [each.state for each in client.get("/workloads").context["states"]]
    assert "unschedulable" not in titles
    giant = make.workload(cast.vision, "giant", reason="Unschedulable")
    page = client.get("/workloads?state=unschedulable")
    assert [row.name for row in page.context["slice"].rows] == ["giant"]
    assert page.context["states"][1:3] == [
        StateCount("pending", "Pending", 2),
        StateCount("unschedulable", "Unschedulable", 1),
    ]
    array = arrays.submit(
        actor=cast.dave, document={**training("grid", array={"tasks": 2}), "project": "vision"}
    )
    tasks = Workload.objects.filter(array=array.array)
    tasks.filter(array_index=0).update(phase="running")
    tasks.filter(array_index=1).update(reason="Unschedulable")
    states = client.get("/workloads").context["states"]
    assert states[1:4] == [
        StateCount("pending", "Pending", 2),
        StateCount("unschedulable", "Unschedulable", 1),
        StateCount("running", "Running", 1),
    ]
    badge = '<span class="chip bad">Unschedulable</span>'
    assert badge in page.content.decode()
    assert badge in client.get(f"/workloads/{giant.pk}").content.decode()
    assert badge not in client.get(f"/workloads/{waiting.pk}").content.decode()


def test_live_workload_rows_show_the_time_in_their_current_state(cast: Cast, sign_in: SignIn) -> None:
    started = make.ago(minutes=3)
    make.workload(cast.vision, "w", phase="running", submitted_at=started, since=started)
    document = {**training("grid", array={"tasks": 3}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    client = sign_in("dave")

    def durations() -> list[str]:
        text = client.get("/workloads").content.decode()
        return re.findall(r'<time datetime="([^"]+)" data-style="lasting"', text)

    assert durations() == [array.submitted_at.isoformat(), started.isoformat()]
    first = array.submitted_at + timedelta(seconds=2)
    tasks = Workload.objects.filter(array=array)
    tasks.filter(array_index=0).update(phase="running", first_started_at=first)
    assert durations() == [first.isoformat(), started.isoformat()]


@pytest.mark.heavy
def test_ended_workloads_show_when_they_ended_and_how_long_they_ran(cast: Cast, sign_in: SignIn) -> None:
    started, ended = make.ago(minutes=9), make.ago(minutes=2)
    values: Any = {"phase": "completed", "run": 2, "submitted_at": started, "since": ended}
    make.workload(cast.vision, "done", started_at=started, ended_at=started + timedelta(minutes=7), **values)
    make.workload(cast.vision, "runs", phase="running", started_at=started)
    client = sign_in("dave")
    assert "Runtime</th>" not in client.get("/workloads").content.decode()
    chosen = client.get("/workloads?columns=state,runtime").content.decode()
    assert re.search(r'data-label="Runtime"><span class="phone-only unit">runs for </span>9 min', chosen)
    text = client.get("/workloads?state=ended").content.decode()
    assert 'data-style="ago"' in text and 'data-style="lasting"' not in text
    assert re.search(r'data-label="Runtime">.*?7 min<span class="sub">last of 2 runs</span>', text)
    lines = csv.DictReader(
        io.StringIO(streamed(client.get("/workloads?state=all&format=csv")).decode("utf-8-sig"))
    )
    runtimes = {line["Workload"]: int(line["Runtime (s)"]) for line in lines}
    assert runtimes["done"] == 420 and 540 <= runtimes["runs"] < 600


def test_ended_array_shows_its_runtime_and_the_cause_of_failures(cast: Cast, sign_in: SignIn) -> None:
    document = {**training("grid", array={"tasks": 3}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    started = make.ago(minutes=30)
    for minutes, task in enumerate(Workload.objects.filter(array=array).order_by("array_index")):
        first = started + timedelta(minutes=minutes)
        Workload.objects.filter(pk=task.pk).update(
            phase="failed",
            reason="PodFailed",
            exit_code=1,
            first_started_at=first,
            started_at=first,
            ended_at=make.ago(),
        )
    WorkloadArray.objects.filter(pk=array.pk).update(state="failed", ended_at=started + timedelta(minutes=20))
    text = sign_in("dave").get("/workloads?state=ended").content.decode()
    assert '3 failed</span></span><span class="sub">Exit code 1</span>' in text
    assert re.search(r'data-label="Runtime">.*?20 min', text)


def test_empty_list_states_whether_there_are_ended_workloads(cast: Cast, sign_in: SignIn) -> None:
    client = sign_in("dave")
    assert "No workloads yet" in client.get("/workloads").content.decode()
    make.workload(cast.vision, "old", phase="completed", ended_at=make.ago(hours=1))
    assert "No live workloads" in client.get("/workloads").content.decode()
