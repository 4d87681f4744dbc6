"""Tests for the user's own workloads on the overview."""

import re

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from projects.models import InferenceEngine, Service, Workload, WorkloadArray
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, submit_array


def test_list_of_own_workloads_shows_each_array_as_one_row(cast: Cast, sign_in: SignIn) -> None:
    queued, running, ended = (submit_array(cast, name, 4) for name in ("queued", "running", "ended"))
    for position, task in enumerate(Workload.objects.filter(array=queued).order_by("-array_index")):
        explanation = {
            "queue_position": 7 + position,
            "expected_start": f"2026-11-28T12:0{position}:00+00:00",
        }
        Workload.objects.filter(pk=task.pk).update(explanation=explanation)
    Workload.objects.filter(array=running, array_index=0).update(phase="running", gpu_milli_now=1000)
    Workload.objects.filter(array=ended).update(phase="failed", exit_code=1, ended_at=make.ago())
    WorkloadArray.objects.filter(pk=ended.pk).update(state="failed", ended_at=make.ago())
    make.workload(cast.vision, "alone", phase="running", by=cast.dave.user, submitted_at=make.ago(hours=1))
    answer = sign_in("dave").get("/")
    rows = [(own.workload or own.array).name for own in answer.context["mine"]]
    assert rows == ["queued", "running", "alone", "ended"]
    first = answer.context["mine"][0]
    assert (first.position, first.expected_start.minute) == (7, 0)
    text = re.sub(r"<[^>]+>", " ", answer.content.decode())
    words = " ".join(text.split())
    assert "0 of 4 completed Positions 7\N{EN DASH}10 starts 2026-11-28 12:00 UTC" in words, "as in the list"
    assert "0 of 4 completed 1 running" in words and "0 of 4 completed 4 failed" in words
    assert sign_in("carol").get("/").context["mine"] == []


def test_own_workloads_are_filtered_by_the_pool_selected_on_the_overview(cast: Cast, sign_in: SignIn) -> None:
    make.pool("other")
    make.workload(cast.vision, "here", by=cast.dave.user, pools=[cast.pool.name])
    make.workload(cast.vision, "elsewhere", by=cast.dave.user, pools=["other"])
    submit_array(cast, "grid", 2)
    dave = sign_in("dave")
    for pool, expected in ((cast.pool.name, {"here", "grid"}), ("other", {"elsewhere"})):
        answer = dave.get("/", {"pool": pool})
        rows = answer.context["mine"]
        assert {(own.workload or own.array).name for own in rows} == expected
        assert answer.context["mine_total"] == len(expected)
        assert f'href="/workloads?mine=1&amp;state=all&amp;pool={pool}"' in answer.content.decode()


def test_own_workloads_heading_states_how_many_are_shown(cast: Cast, sign_in: SignIn) -> None:
    for number in range(9):
        make.workload(cast.vision, f"w{number}", by=cast.dave.user)
    submit_array(cast, "grid", 2)
    text = sign_in("dave").get("/").content.decode()
    heading = text.partition('id="mine-title"')[2].partition("</h2>")[0]
    assert '<span class="faint wide-only">8 of 10</span>' in heading
    assert '<span class="faint phone-only">3 of 10</span>' in heading, "phones show three rows"


def test_own_workloads_without_a_known_start_show_the_same_text_as_the_queue(
    cast: Cast, sign_in: SignIn
) -> None:
    because = "workloads without a maximum runtime have to end first"
    array, by = submit_array(cast, "grid", 2), cast.dave.user
    explanation = {"queue_position": 3, "expected_start_reason": because}
    Workload.objects.filter(array=array).update(explanation=explanation)
    make.workload(cast.vision, "alone", by=by, explanation=explanation | {"queue_position": 2})
    make.workload(cast.vision, "too-large", by=by, reason="Unschedulable", submitted_at=make.ago(hours=1))
    make.workload(cast.vision, "broken", by=by, phase="failed", gpus=2)
    text = sign_in("dave").get("/").content.decode()
    card = text.partition('aria-labelledby="mine-title"')[2].partition("</section>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", card).split())
    assert re.search(r"alone vision Pending .*? Position 2 starts when other workloads end", words)
    assert re.search(r"grid vision · 2 tasks Pending .*? Position 3 starts when other workloads end", words)
    assert re.search(r"too-large vision Unschedulable .*? Can never start", words)
    assert re.search(r"broken vision Failed \S.* 2 GPUs", words)


def test_every_own_workload_has_a_status(cast: Cast, sign_in: SignIn) -> None:
    by, now = cast.dave.user, timezone.now()
    make.workload(cast.vision, "new", by=by)
    make.workload(cast.vision, "bounded", phase="running", by=by, started_at=now, max_runtime=3600)
    make.workload(cast.vision, "endless", phase="running", by=by, message="1 of 1 pods running.")
    make.workload(cast.vision, "over", phase="completed", by=by, ended_at=now, message="All pods succeeded.")
    text = sign_in("dave").get("/").content.decode()
    card = text.partition('aria-labelledby="mine-title"')[2].partition("</section>")[0]
    cells = re.findall(r'<td class="why">(.*?)</td>', card, re.DOTALL)
    statuses = [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in cells]
    assert statuses[0] == "Not evaluated yet" and statuses[-1] == "All pods succeeded"
    assert sorted(status[:7] for status in statuses[1:3]) == ["1 of 1 ", "Ends by"]


def test_own_services_are_listed_without_their_pending_engines(cast: Cast, sign_in: SignIn) -> None:
    by, now = cast.dave.user, timezone.now()
    row = make.workload(cast.vision, "chat", kind="service", phase="running", by=by)
    engine = make.workload(cast.vision, "chat-e1", kind="service", by=by)
    service = Service.objects.create(workload=row, role="worker", initial_engines=1, next_number=2)
    InferenceEngine.objects.create(
        service=service, number=1, origin="managed", state="CREATING", workload=engine, since=now,
        created_at=now,
    )  # fmt: skip
    answer = sign_in("dave").get("/")
    assert [own.row.name for own in answer.context["mine"]] == ["chat"] and answer.context["mine_total"] == 1
    assert "0 of 1 engines serving" in answer.content.decode()


def test_own_services_show_how_many_engines_are_serving(cast: Cast, sign_in: SignIn) -> None:
    row = make.workload(cast.vision, "chat", kind="service", phase="running", by=cast.dave.user)
    service = Service.objects.create(workload=row, role="worker", initial_engines=2, next_number=2)
    make.workload(cast.vision, "empty", kind="service", phase="running", by=cast.dave.user)
    for number, state in enumerate(("ACTIVE", "CREATING")):
        InferenceEngine.objects.create(
            service=service, number=number, origin="initial", state=state, is_healthy=True,
            since=timezone.now(), created_at=timezone.now(), workload=row,
        )  # fmt: skip
    text = sign_in("dave").get("/").content.decode()
    card = text.partition('aria-labelledby="mine-title"')[2].partition("</section>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", card).split())
    assert re.search(r"chat vision Partly serving .*? 1 of 2 engines serving 1 starting", words)
    assert re.search(r"empty vision Not serving .*? No engines", words)


def test_overview_statement_count_does_not_grow_with_arrays(cast: Cast, sign_in: SignIn) -> None:
    counts, client = [], sign_in("dave")
    for number in range(3):
        array = submit_array(cast, f"grid-{number}", 2)
        Workload.objects.filter(array=array, array_index=0).update(
            phase="failed", exit_code=1, ended_at=make.ago()
        )
        Workload.objects.filter(array=array, array_index=1).update(reason="Unschedulable")
        with CaptureQueriesContext(connection) as statements:
            assert len(client.get("/").context["mine"]) == number + 1
        counts.append(len(statements))
    assert counts[1:] == counts[1:2] * 2, counts


def test_array_with_several_queue_positions_has_a_plural_label(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "grid", 2)
    for index, position in ((0, 2), (1, 7)):
        Workload.objects.filter(array=array, array_index=index).update(
            explanation={"queue_position": position, "pool": cast.pool.name}
        )
    page = sign_in("dave").get("/").content.decode()
    assert "<span>Positions 2, 7</span>" in page
