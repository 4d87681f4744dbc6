"""Tests for the status texts of the workload list."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from projects.models import InferenceEngine, PodState, Service, Workload
from scheduler.models import Reservation
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, submit_array


def list_row(sign_in: SignIn, name: str, query: str = "") -> str:
    """Return the text of a workload's row without tags, with one space between words."""
    row = list_html(sign_in, name, query)
    return " ".join(re.sub(r"<[^>]+>", " ", row).split())


def list_html(sign_in: SignIn, name: str, query: str = "") -> str:
    page = sign_in("dave").get(f"/workloads{query}").content.decode()
    return next(row for row in page.split("<tr")[1:] if f">{name}</a>" in row)


def test_failed_row_loads_the_error_line_of_the_pod_that_failed_first(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool)
    message = "Pod worker-0 ended with exit code 1."
    workload = make.workload(cast.vision, "broken", replicas=2, phase="failed", message=message)
    second = make.place(workload, node, [0], state=PodState.FAILED, ended_at=timezone.now())
    first = make.place(workload, node, [1], state=PodState.FAILED, ended_at=make.ago(minutes=1))
    make.workload(cast.vision, "podless", phase="failed", message="Cannot start.")
    row = list_html(sign_in, "broken", "?state=all")
    assert message.removesuffix(".") in row
    assert f'data-log-line="/workloads/{workload.pk}/log?pod={first.pk}&amp;tail=40"' in row
    assert str(second.pk) not in row
    assert "data-log-line" not in list_html(sign_in, "podless", "?state=all")


@pytest.mark.parametrize(
    ("gpus", "status", "column"),
    [(2, "1 pod on {}", "2 of 2\N{EN DASH}14 GPUs"), (0, "1 of 1\N{EN DASH}7 pods on {}", "")],
)
def test_elastic_workload_row_shows_its_replica_range_once(
    gpus: int, status: str, column: str, cast: Cast, sign_in: SignIn
) -> None:
    workload = make.workload(
        cast.vision, "grows", gpus=gpus, kind="elastic", phase="running", message="1 of 1 pods running."
    )
    workload.roles.all().delete()
    workload.roles.create(name="worker", position=0, min=1, max=7, gpu_devices=gpus, gpu_milli=1000)
    node = make.node(cast.pool)
    make.place(workload, node, [*range(gpus)])
    row = list_row(sign_in, "grows")
    assert status.format(node.name) in row and column in row
    assert len(re.findall(r"\d\N{EN DASH}\d", row)) == 1


@pytest.mark.parametrize(
    ("pools", "expected"),
    [(["local"], "Training · vision · local"), (["local", "spare"], "vision · local or spare"),
     (["spare", "local", "third"], "vision · spare or 2 other pools")],
)  # fmt: skip
def test_pending_workload_row_shows_its_pools(
    pools: list[str], expected: str, cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "waits", pools=pools)
    assert expected in list_row(sign_in, "waits")


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        (
            "WouldExceedFairShare",
            "Over fair share.",
            "Would exceed fair share over fair share Position 3 evicted 2 times",
        ),
        ("Unschedulable", "requests 64 GPUs.", "Requests 64 GPUs "),
    ],
)
def test_pending_workload_row_shows_its_reason_and_position(
    reason: str, message: str, expected: str, cast: Cast, sign_in: SignIn
) -> None:
    explanation = {"queue_position": 3, "pool": "local", "blockers": [{"reason": reason, "message": message}]}
    make.workload(
        cast.vision, "waits", reason=reason, message=message, explanation=explanation, preemptions=2
    )
    row = list_row(sign_in, "waits")
    assert expected in row and ("Position" in row) is (reason != "Unschedulable")
    assert row.count("Pending") + row.count("Unschedulable") == 1, "the status does not repeat the state"


@pytest.mark.parametrize(
    ("state", "ready_in", "expected"),
    [
        ("booting", timedelta(minutes=2), r"Starts 20[-\d]+ [:\d]+ UTC ?, once booted"),
        (
            "booting",
            timedelta(minutes=-2),
            r"Start overdue since 20[-\d]+ [:\d]+ UTC ?; starts once the node has booted",
        ),
        ("booting", None, r"Starts once booted "),
        ("ready", None, r"Starts once pods there have stopped "),
    ],
)
def test_reserved_workload_row_shows_its_node_and_what_it_is_waiting_for(
    cast: Cast, sign_in: SignIn, state: str, ready_in: timedelta | None, expected: str
) -> None:
    ready_at = ready_in and timezone.now() + ready_in
    node = make.node(cast.pool, state=state, ready_at=ready_at)
    workload = make.workload(
        cast.vision,
        "next",
        replicas=2,
        phase="reserved",
        message="Reserved: 2 pods.",
        reason="WaitingForScaleUp",
    )
    for index in range(2):
        Reservation.objects.create(
            workload=workload, role="worker", index=index, node=node, devices=[index], gpu_milli=1000
        )
    row = list_row(sign_in, "next")
    assert re.search(rf"Reserved on {node.name} {expected}", row), row
    assert "Reserved:" not in row


@pytest.mark.heavy
def test_array_row_shows_queue_positions_and_the_next_start(cast: Cast, sign_in: SignIn) -> None:
    array, start = submit_array(cast, "sweep", 4), timezone.now() + timedelta(minutes=70)
    tasks = Workload.objects.filter(array=array)
    for index, position in ((0, 3), (1, 2)):
        expected = start + timedelta(minutes=5 * index)
        tasks.filter(array_index=index).update(
            explanation={"queue_position": position, "pool": "local", "expected_start": expected.isoformat()}
        )
    tasks.filter(array_index__gt=1).update(held=True)
    row = list_row(sign_in, "sweep")
    assert f"0 of 4 completed Positions 2\N{EN DASH}3 starts {start:%Y-%m-%d %H:%M} UTC" in row
    tasks.filter(array_index=0).update(explanation={"queue_position": 7, "pool": "local"})
    assert "completed Positions 2, 7 starts" in list_row(sign_in, "sweep"), "as on the queue page"
    tasks.filter(array_index=0).update(phase="running")
    assert "completed 1 running Position 2 starts" in list_row(sign_in, "sweep")
    tasks.filter(array_index=1).update(held=True)
    assert "Position" not in list_row(sign_in, "sweep"), "the other tasks wait for earlier ones"
    tasks.update(held=False, explanation={"queue_position": 2, "pool": "local"})
    tasks.filter(array_index=3).update(explanation={"queue_position": 7, "pool": "spare"})
    assert "Position" not in list_row(sign_in, "sweep"), "the positions are in different queues"


@pytest.mark.heavy
def test_live_workload_list_shows_workloads_that_failed_in_the_last_day(cast: Cast, sign_in: SignIn) -> None:
    client = sign_in("dave")
    make.workload(cast.vision, "runs", phase="running")
    make.workload(cast.vision, "long-ago", phase="failed", ended_at=make.ago(hours=25))
    assert "failed-note" not in client.get("/workloads").content.decode()
    for hours in range(1, 6):
        name, ended_at = f"broken-{hours}", make.ago(hours=hours)
        make.workload(cast.vision, name, phase="failed", ended_at=ended_at, submitted_at=make.ago(hours=9))
    page = client.get("/workloads?project=vision").content.decode()
    note = page.partition("failed-note")[2].partition("</p>")[0]
    assert re.findall(r">vision/([\w-]+)</a>", note) == ["broken-1", "broken-2", "broken-3"]
    address = re.findall(r'<a href="([^"]+)">Show all</a>', note)[0].replace("&amp;", "&")
    names = {row.name for row in client.get(f"/workloads{address}").context["slice"].rows}
    assert names == {f"broken-{hours}" for hours in range(1, 6)}
    for query in ("?project=speech", "?state=running", "?search=runs"):
        assert "failed-note" not in client.get(f"/workloads{query}").content.decode()


def test_recent_failures_are_ordered_by_the_end_of_the_whole_array(cast: Cast, sign_in: SignIn) -> None:
    array, ended = submit_array(cast, "sweep", 2), make.ago(minutes=1)
    tasks = Workload.objects.filter(array=array)
    tasks.filter(array_index=0).update(phase="completed", ended_at=make.ago(hours=20), held=False)
    tasks.filter(array_index=1).update(phase="failed", ended_at=ended, held=False)
    type(array).objects.filter(pk=array.pk).update(state="failed", ended_at=ended)
    for hours in range(5, 9):
        make.workload(cast.vision, f"broken-{hours}", phase="failed", ended_at=make.ago(hours=hours))
    page = sign_in("dave").get("/workloads").content.decode()
    note = page.partition("failed-note")[2].partition("</p>")[0]
    assert re.findall(r">vision/([\w-]+)</a>", note) == ["sweep", "broken-5", "broken-6"]


def test_service_row_counts_external_engines(cast: Cast, sign_in: SignIn) -> None:
    server = make.workload(
        cast.vision, "chat", kind="service", phase="running", message="1 of 1 pods running."
    )
    service = Service.objects.create(workload=server, role="worker", initial_engines=1, next_number=2)
    for number, origin in enumerate(("initial", "external")):
        InferenceEngine.objects.create(
            service=service, number=number, origin=origin, state="ACTIVE", is_healthy=True,
            since=timezone.now(), created_at=timezone.now(), workload=server if origin == "initial" else None,
        )  # fmt: skip
    assert "<span>2 of 2 engines serving (1 external)</span>" in list_html(sign_in, "chat")
    InferenceEngine.objects.filter(number=1).update(state="WEIGHT_SYNCING")
    html = list_html(sign_in, "chat")
    assert '<span class="warn">1 of 2 engines serving</span>' in html
    assert "1 weight syncing (external)" in html, "the numbers of engines add up to the total"


def test_partly_serving_service_shows_how_long_an_engine_has_not_been_serving(
    cast: Cast, sign_in: SignIn
) -> None:
    hours = make.ago(hours=5)
    server = make.workload(cast.vision, "chat", kind="service", phase="running", since=hours)
    service = Service.objects.create(workload=server, role="worker", initial_engines=1, next_number=2)
    for number in range(2):
        InferenceEngine.objects.create(
            service=service, number=number, origin="initial", state="ACTIVE", is_healthy=True,
            since=hours, created_at=hours, workload=server,
        )  # fmt: skip
    engine = InferenceEngine.objects.filter(number=1)
    engine.update(state="CONNECTING", connection_failures=2, since=(since := make.ago(minutes=2)))
    state = '<span class="chip warn">Partly serving</span><span class="sub">'
    assert f'{state}<time datetime="{since.isoformat()}"' in list_html(sign_in, "chat")
    engine.update(state="ACTIVE", is_healthy=False, since=hours)
    html = list_html(sign_in, "chat")
    assert f"{state}running <time" in html, "the time of the failed check is unknown"


def test_empty_list_shows_the_search_text_and_counts_matches_in_other_states(
    cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "resnet", phase="completed", ended_at=make.ago())
    client = sign_in("dave")
    text = client.get("/workloads?search=resn&project=vision").content.decode()
    assert "No live workloads match &quot;resn&quot;" in text
    assert "1 workload in other states matches." in text
    assert re.search(r'href="\?search=resn&amp;project=vision&amp;state=all">Show all states<', text)
    text = client.get("/workloads?search=zzz").content.decode()
    assert "No live workloads match &quot;zzz&quot;" in text and "in other states" not in text
    assert "The search matches parts of names" in text
