"""Tests for the items under "Needs attention" on the overview."""

import re
from datetime import UTC
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from pools.models import NodePool
from projects.models import (
    Budget,
    BudgetWarning,
    Delivery,
    InferenceEngine,
    Service,
    Workload,
    WorkloadArray,
)
from projects.services.workloads import resubmit
from scheduler.models import UsageHour
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, submit_array


def attention(client: Client, query: str = "") -> list[tuple[str, str]]:
    text = client.get(f"/{query}").content.decode()
    _, _, card = text.partition('aria-labelledby="attention-title"')
    lines = card.partition("</section>")[0]
    return re.findall(r'<li><span class="chip \w+">([^<]+)</span>.*?<a [^>]*>([^<]+)</a>', lines)


def test_healthy_installation_has_no_items_that_need_attention(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    assert attention(sign_in("dave")) == []


def test_only_the_users_own_failed_and_unschedulable_workloads_need_attention(
    cast: Cast, sign_in: SignIn
) -> None:
    by = cast.dave.user
    for hours in (3, 1):
        make.workload(cast.vision, "broken", phase="failed", ended_at=make.ago(hours=hours), by=by)
    make.workload(cast.vision, "long-ago", phase="failed", ended_at=make.ago(hours=30), by=by)
    make.workload(cast.vision, "others", phase="failed", ended_at=make.ago(hours=1))
    make.workload(cast.vision, "too-large", reason="Unschedulable", pools=[cast.pool.name], by=by)
    assert attention(sign_in("dave")) == [("Failed", "vision/broken"), ("Unschedulable", "vision/too-large")]


def test_platform_admins_see_the_latest_failures_of_all_users(cast: Cast, sign_in: SignIn) -> None:
    by = cast.dave.user
    for hours in (5, 4, 3, 2):
        make.workload(cast.vision, f"broken-{hours}", phase="failed", ended_at=make.ago(hours=hours), by=by)
    make.workload(cast.vision, "long-ago", phase="failed", ended_at=make.ago(hours=30), by=by)
    make.workload(cast.vision, "own", phase="failed", ended_at=make.ago(hours=1), by=cast.alice.user)
    spare = make.pool("spare")
    make.workload(cast.vision, "elsewhere", phase="failed", ended_at=make.ago(), by=by, pools=[spare.name])
    client = sign_in("alice")
    *_, further = items = client.get(f"/?pool={cast.pool.name}").context["attention"]
    names = ["vision/own", "vision/broken-2", "vision/broken-3", "2 more workloads"]
    assert [item.name for item in items] == names
    assert further.text == "Failed in the last 24 hours."
    rows = client.get(further.path).context["slice"].rows
    assert {row.name for row in rows} == {"own", *(f"broken-{hours}" for hours in (5, 4, 3, 2))}
    assert attention(client)[0] == ("Failed", "vision/elsewhere")
    *_, further = sign_in("dave").get("/").context["attention"]
    rows = sign_in("dave").get(further.path).context["slice"].rows
    assert further.name == "2 more workloads" and len(rows) == 5


def test_repeated_failures_of_one_workload_do_not_hide_other_failures(cast: Cast, sign_in: SignIn) -> None:
    for minute in range(30):
        ended = make.ago(minutes=minute)
        make.workload(cast.vision, "loop", phase="failed", ended_at=ended, by=cast.dave.user)
    make.workload(cast.vision, "other", phase="failed", ended_at=make.ago(hours=10), by=cast.dave.user)
    assert attention(sign_in("dave")) == [("Failed", "vision/loop"), ("Failed", "vision/other")]


def test_resubmitted_failures_no_longer_need_attention(cast: Cast, sign_in: SignIn) -> None:
    for name, hours in (("loop", 3), ("loop", 2), ("other", 1)):
        ended, by = make.ago(hours=hours), cast.dave.user
        workload = make.workload(cast.vision, name, phase="failed", ended_at=ended, by=by)
        if (name, hours) == ("loop", 2):
            resubmit(actor=cast.dave, workload=workload)
    for user in ("dave", "alice"):
        assert attention(sign_in(user)) == [("Failed", "vision/other")], user


def test_failed_array_creates_only_one_attention_item(cast: Cast, sign_in: SignIn) -> None:
    array, ended = submit_array(cast, "grid", 12), make.ago(minutes=5)
    tasks = Workload.objects.filter(array=array)
    tasks.update(phase="failed", reason="PodFailed", exit_code=1, ended_at=ended)
    client = sign_in("dave")
    (item,) = client.get("/").context["attention"]
    assert (item.name, item.path, item.at) == ("vision/grid", f"/arrays/{array.pk}", ended)
    assert item.text == "12 of 12 tasks failed (exit code 1)."
    tasks.filter(array_index__lt=3).update(exit_code=137)
    tasks.filter(array_index=3).update(reason="OutOfMemory", exit_code=1)
    tasks.filter(array_index=4).update(phase="completed")
    make.workload(cast.vision, "later", phase="failed", ended_at=make.ago(), by=cast.dave.user)
    later, item = client.get("/").context["attention"]
    assert later.name == "vision/later"
    assert item.text == "11 of 12 tasks failed (7 exit code 1, 3 SIGKILL, 1 other)."
    assert attention(sign_in("carol")) == []


def test_only_the_latest_of_several_failed_arrays_with_the_same_name_needs_attention(
    cast: Cast, sign_in: SignIn
) -> None:
    paths = []
    for name, minutes in (("other", 60), *(("grid", minutes) for minutes in range(12, 1, -1))):
        tasks = Workload.objects.filter(array=(array := submit_array(cast, name, 2)))
        tasks.update(phase="failed", reason="PodFailed", exit_code=1, ended_at=make.ago(minutes=minutes))
        WorkloadArray.objects.filter(pk=array.pk).update(state="failed", ended_at=make.ago(minutes=minutes))
        paths.append(f"/arrays/{array.pk}")
    items = sign_in("dave").get("/").context["attention"]
    assert [item.path for item in items] == [paths[-1], paths[0]]


def test_array_that_can_never_start_creates_only_one_attention_item(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "big", 4)
    Workload.objects.filter(array=array).update(reason="Unschedulable", message="Each replica is too large.")
    (item,) = sign_in("dave").get("/").context["attention"]
    assert (item.label, item.name, item.path) == ("Unschedulable", "vision/big", f"/arrays/{array.pk}")
    assert item.text == "Can never start as specified. Each replica is too large."


@pytest.mark.heavy
def test_platform_admins_see_errors_of_pools_budgets_and_deliveries(cast: Cast, sign_in: SignIn) -> None:
    assert attention(sign_in("alice")) == []
    make.create_scheduler_lease()
    NodePool.objects.filter(pk=cast.pool.pk).update(last_error="no credentials", ticked_at=timezone.now())
    budget = Budget.objects.create(project=cast.vision, gpu_hours=10, version=1)
    now = timezone.now().astimezone(UTC)
    BudgetWarning.objects.create(budget=budget, month=now.date().replace(day=1), percent=100)
    UsageHour.objects.create(
        hour=now.replace(minute=0, second=0, microsecond=0), pool_id=cast.pool.pk, pool_name="local",
        department_id=cast.research.pk, department_name="research", project_id=cast.vision.pk,
        project_name="vision", user_name="dave", gpu_milli_seconds=17_200 * 3600,
    )  # fmt: skip
    Delivery.objects.create(
        kind="failed", to="x", channel="webhook", content={}, state="failed", next_attempt_at=make.ago(),
        ended_at=make.ago(),
    )  # fmt: skip
    _, budget_item, delivery_item = items = sign_in("alice").get("/").context["attention"]
    assert [(item.label, item.name) for item in items] == [
        ("Pool error", "local"), ("Over budget", "vision"), ("Not delivered", "Notifications"),
    ]  # fmt: skip
    assert budget_item.text == "17 GPU-hours used this month, 172% of the budget of 10."
    assert budget_item.at == BudgetWarning.objects.get().at
    assert delivery_item.text == "1 could not be delivered in the last 24 hours."
    in_pool = sign_in("alice").get("/", {"pool": cast.pool.name}).content.decode()
    assert "172% of the budget of 10 for all pools." in in_pool
    assert "1 about all pools could not be delivered in the last 24 hours." in in_pool
    assert attention(sign_in("dave")) == []
    assert "is failing" in sign_in("dave").get("/").content.decode()


def test_errors_come_before_warnings(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "broken", phase="failed", ended_at=make.ago(hours=1), by=cast.alice.user)
    make.workload(cast.vision, "too-large", reason="Unschedulable", pools=[cast.pool.name])
    Delivery.objects.create(
        kind="failed", to="x", channel="webhook", content={}, state="failed", next_attempt_at=make.ago(),
        ended_at=make.ago(),
    )  # fmt: skip
    lines = attention(sign_in("alice"))
    assert lines == [
        ("Unschedulable", "1 pending workload"), ("Failed", "vision/broken"),
        ("Not delivered", "Notifications"),
    ]  # fmt: skip


@pytest.mark.heavy
def test_queue_below_its_fair_share_needs_attention_after_five_minutes(cast: Cast, sign_in: SignIn) -> None:
    make.queue_status(cast.vision, cast.pool, share=4, allocated=0, requested=4)
    row = make.workload(cast.vision, "waits", pools=[cast.pool.name], since=make.ago(minutes=4))
    client = sign_in("alice")
    assert attention(client) == []
    Workload.objects.filter(pk=row.pk).update(since=make.ago(minutes=6))
    assert attention(client) == [("Below fair share", "vision")]
    Workload.objects.filter(pk=row.pk).delete()
    assert attention(client) == [("Below fair share", "vision")], "elastic workloads wait to scale up"


def test_more_than_two_unschedulable_workloads_share_one_item(cast: Cast, sign_in: SignIn) -> None:
    for number in range(3):
        name, at = f"too-large-{number}", make.ago(hours=number + 1)
        make.workload(cast.vision, name, reason="Unschedulable", by=cast.dave.user, submitted_at=at)
        listed = attention(sign_in("dave"))
        if number == 1:
            assert listed == [
                ("Unschedulable", "vision/too-large-0"), ("Unschedulable", "vision/too-large-1"),
            ]  # fmt: skip
    assert listed == [("Unschedulable", "3 pending workloads")]


@pytest.mark.heavy
def test_attention_item_links_to_the_unschedulable_workloads_of_the_selected_pool(
    cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "too-large", reason="Unschedulable", pools=[cast.pool.name])
    client = sign_in("alice")
    for query, address in (
        ("", "/workloads?state=unschedulable"),
        (f"?pool={cast.pool.name}", f"/workloads?state=unschedulable&pool={cast.pool.name}"),
    ):
        (item,) = client.get(f"/{query}").context["attention"]
        assert item.path == address
        assert [row.name for row in client.get(address).context["slice"].rows] == ["too-large"]


def test_own_workloads_in_other_pools_do_not_hide_unschedulable_workloads(
    cast: Cast, sign_in: SignIn
) -> None:
    spare = make.pool("spare")
    by = cast.dave.user
    make.workload(cast.vision, "too-large", reason="Unschedulable", pools=[spare.name], by=by)
    make.workload(cast.vision, "others", reason="Unschedulable", pools=[cast.pool.name])
    lines = attention(sign_in("dave"), f"?pool={cast.pool.name}")
    assert lines == [("Unschedulable", "vision/too-large"), ("Unschedulable", "1 pending workload")]


def test_idle_gpus_of_the_user_need_attention(
    cast: Cast, sign_in: SignIn, running: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    Workload.objects.filter(pk=running.pk).update(submitted_by=cast.dave.user)
    since = make.ago(hours=2)
    monkeypatch.setattr(
        "berth.server.web.overview.attention.idle_since", lambda rows, now: dict.fromkeys(rows, since)
    )
    assert attention(sign_in("dave")) == [("GPUs idle", "vision/baseline")]
    assert attention(sign_in("carol")) == []


def test_platform_admins_see_idle_gpus_of_other_users_in_one_item(
    cast: Cast, sign_in: SignIn, running: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    Workload.objects.filter(pk=running.pk).update(submitted_by=cast.dave.user, gpu_milli_now=2000)
    since = make.ago(hours=2)
    monkeypatch.setattr(
        "berth.server.web.overview.attention.idle_since", lambda rows, now: dict.fromkeys(rows, since)
    )
    client = sign_in("alice")
    (item,) = client.get("/").context["attention"]
    assert (item.name, item.path) == ("vision/baseline", f"/workloads/{running.pk}")
    make.workload(
        cast.vision, "second", phase="running", pool=running.pool, gpu_milli_now=1000, by=cast.carol.user
    )
    (item,) = client.get("/").context["attention"]
    assert (item.label, item.name) == ("GPUs idle", "2 workloads")
    assert item.text == "3 GPUs are allocated but not used."
    assert len(client.get(item.path).context["slice"].rows) == 2


@pytest.mark.heavy
def test_workload_that_exceeds_the_remaining_fair_share_needs_attention(cast: Cast, sign_in: SignIn) -> None:
    status = make.queue_status(cast.vision, cast.pool, share=6, allocated=1, requested=9)
    pending: dict[str, Any] = {"pools": [cast.pool.name], "since": make.ago(minutes=6), "by": cast.dave.user}
    large = make.workload(cast.vision, "large", gpus=8, **pending)
    (item,) = sign_in("dave").get("/").context["attention"]
    assert (item.label, item.name, item.path) == (
        "Exceeds fair share", "vision/large", f"/workloads/{large.pk}/review-change",
    )  # fmt: skip
    assert item.text == (
        f"Requests 8 GPUs, but vision has 5 GPUs left of its fair share in {cast.pool.name}. No start is "
        "expected. A request of up to 5 GPUs would stay within the share."
    )
    Workload.objects.filter(pk=large.pk).update(explanation={"expected_start": make.ago().isoformat()})
    assert sign_in("dave").get("/").context["attention"] == [], "the workload starts without a change"
    Workload.objects.filter(pk=large.pk).update(explanation={})
    assert sign_in("carol").get("/").context["attention"][0].path == item.path
    type(status).objects.filter(pk=status.pk).update(requested=[11000, 0, 0])
    (item,) = sign_in("dave").get("/").context["attention"]
    assert item.label == "Below fair share", "an elastic workload can scale up by two GPUs"
    make.workload(cast.vision, "small", gpus=2, **pending)
    (item,) = sign_in("dave").get("/").context["attention"]
    assert item.label == "Below fair share"


def test_attention_item_links_to_an_array_that_exceeds_the_fair_share(cast: Cast, sign_in: SignIn) -> None:
    make.queue_status(cast.vision, cast.pool, share=1, allocated=0.5, requested=3.5)
    array = submit_array(cast, "grid", 3)
    columns = {"pools": [cast.pool.name], "since": make.ago(minutes=6)}
    Workload.objects.filter(array=array).update(gpu_milli_min=1000, **columns)
    (item,) = sign_in("dave").get("/").context["attention"]
    assert (item.label, item.name, item.path) == ("Exceeds fair share", "vision/grid", f"/arrays/{array.pk}")
    assert item.text.startswith("Requests 1 GPU per task, but vision has 0.5 GPUs left of its fair share")


def test_failed_array_links_to_the_log_of_its_last_failed_task(cast: Cast, sign_in: SignIn) -> None:
    array, node = submit_array(cast, "grid", 3), make.node(cast.pool)
    for index, minutes in ((0, 9), (1, 5)):
        task, ended = Workload.objects.get(array=array, array_index=index), make.ago(minutes=minutes)
        pod = make.place(task, node, [index], state="failed", ended_at=ended)
        Workload.objects.filter(pk=task.pk).update(phase="failed", ended_at=ended)
    (item,) = sign_in("dave").get("/").context["attention"]
    assert item.log == f"/workloads/{task.pk}/log?pod={pod.pk}&tail=40"


def _engine(service: Service, number: int, state: str, **columns: Any) -> InferenceEngine:
    now = timezone.now()
    return InferenceEngine.objects.create(
        **{
            "service": service, "number": number, "state": state, "origin": "initial", "is_healthy": True,
            "since": now, "created_at": now, "workload": service.workload,
        }
        | columns
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("CREATING", {}),
        ("CONNECTING", {"connection_failures": 1, "message": "connection refused"}),
        ("HEALTH_CHECKING", {"failures": 1, "message": "connection refused"}),
    ],
)
def test_starting_engine_needs_attention_only_after_fifteen_minutes(
    cast: Cast, sign_in: SignIn, state: str, columns: dict[str, Any]
) -> None:
    by = cast.dave.user
    row = make.workload(cast.vision, "chat", kind="service", phase="running", by=by, pool=cast.pool)
    service = Service.objects.create(workload=row, role="worker", initial_engines=1, next_number=2)
    _engine(service, 0, "ACTIVE")
    added = make.workload(cast.vision, "chat-1", phase="pending", by=by)
    engine = _engine(service, 1, state, workload=added, **columns)
    people = [sign_in("dave"), sign_in("alice")]
    assert [attention(client) for client in people] == [[], []]
    InferenceEngine.objects.filter(pk=engine.pk).update(since=make.ago(minutes=16))
    assert [attention(client) for client in people] == [[("Partly serving", "vision/chat")]] * 2


@pytest.mark.heavy
def test_partly_serving_service_needs_attention(cast: Cast, sign_in: SignIn) -> None:
    row = make.workload(
        cast.vision, "chat", kind="service", phase="running", by=cast.dave.user, pool=cast.pool
    )
    service = Service.objects.create(workload=row, role="worker", initial_engines=1, next_number=3)
    _engine(service, 0, "ACTIVE")
    starting = _engine(service, 1, "HEALTH_CHECKING")
    leaving = _engine(service, 2, "DRAINING", since=make.ago(hours=1))
    people = [sign_in("dave"), sign_in("alice")]
    assert [attention(client) for client in people] == [[], []], "one engine starts, and one is removed"
    leaving.delete()
    InferenceEngine.objects.filter(pk=starting.pk).update(since=(since := make.ago(minutes=20)))
    external = _engine(service, 3, "CONNECTING", origin="external", connection_failures=2, workload=None)
    for client in people:
        (item,) = client.get("/").context["attention"]
        assert (item.label, item.tone, item.name) == ("Partly serving", "warn", "vision/chat")
        assert item.text == "1 of 3 engines serving, 1 health checking, 1 cannot be reached (external)."
        assert (item.path, item.at) == (f"/services/{row.pk}", since)
    assert attention(sign_in("carol")) == [], "another user has submitted the service"
    InferenceEngine.objects.filter(pk=external.pk).update(ended_at=timezone.now(), state="REMOVED")
    InferenceEngine.objects.filter(number=0).update(is_healthy=False)
    (item,) = sign_in("dave").get("/").context["attention"]
    assert (item.label, item.tone) == ("Not serving", "bad")
