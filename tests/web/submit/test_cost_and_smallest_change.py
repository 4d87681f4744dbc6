"""Tests of the predicted cost and the smallest change on the submission form."""

import re
from datetime import timedelta
from decimal import Decimal
from html import unescape

import pytest
import yaml
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pools.models import NodePool, QuotaGroup
from projects.models import Project, Quota, Workload
from projects.services.quotas import budgets
from projects.services.workloads import submission
from scheduler.models import UsageHour
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import refresh_form


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


@pytest.mark.parametrize(
    ("requested", "sentence", "changed"),
    [
        ("gpu: 4  # all of them", "role worker requested 2 GPUs instead of 4", "gpu: 2  # all of them"),
        ("node_selector: {zone: a}", "role worker did not require label zone=a", "- {}"),
    ],
)
def test_button_applies_the_smallest_change_to_an_unschedulable_workload(
    cast: Cast, dave: Client, requested: str, sentence: str, changed: str
) -> None:
    make.node(cast.pool, gpus=2)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 64)
    text = f"name: wide\nproject: vision\ncommand: run\nroles:\n- {requested}\n"
    prediction = dave.post("/submit/prediction", {"document": text}).content.decode()
    assert 'hx-post="/submit/smallest-change"' in prediction
    card = dave.post("/submit/smallest-change", {"document": text}).content.decode()
    assert sentence in card
    (step,) = re.findall(r'name="step" value="([^"]+)"', card)
    answer = refresh_form(dave, text, step=unescape(step))
    assert changed in answer.context["text"]
    assert dave.post("/submit/smallest-change", {"document": answer.context["text"]}).content == b""


@pytest.mark.parametrize("replicas", [60, 200])
def test_replica_count_that_fits_is_suggested_for_an_unschedulable_workload(
    cast: Cast, dave: Client, replicas: int
) -> None:
    """The limit is below half of the request. More nodes in pool serve would fit all of it."""
    make.node(cast.pool, gpus=8)
    NodePool.objects.update(nodes_max=4, gpus_per_node=8)
    serve = make.pool("serve", gpus=4, nodes_max=2)
    make.node(serve, gpus=4)
    for owner in (cast.research, cast.vision):
        make.quota(owner, serve, 64)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 8, limit_gpu_milli=16_000)
    text = f"name: wide\nproject: vision\ncommand: run\nroles:\n- {{gpu: 1, replicas: {replicas}}}\n"
    assert "Can never start" in dave.post("/submit/prediction", {"document": text}).content.decode()
    card = dave.post("/submit/smallest-change", {"document": text}).content.decode()
    assert f"it had 16 worker replicas instead of {replicas}" in card and "more node" not in card
    (step,) = re.findall(r'name="step" value="([^"]+)"', card)
    assert "replicas: 16" in refresh_form(dave, text, step=unescape(step)).context["text"]
    wide = submission.submit(actor=cast.dave, project=cast.vision, document=yaml.safe_load(text))
    page = dave.get(f"/workloads/{wide.pk}/smallest-change").content.decode()
    assert f"Request 16 worker replicas instead of {replicas}" in page and "Review change" in page


def test_prediction_of_a_queued_workload_shows_the_smallest_change(cast: Cast, dave: Client) -> None:
    node = make.node(cast.pool, gpus=4)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 64)
    running = make.workload(cast.vision, "runs", phase="running", run=1, pool=cast.pool)
    make.place(running, node, [0, 1])
    text = "name: wide\nproject: vision\ncommand: run\nroles:\n- gpu: 4\n"
    prediction = dave.post("/submit/prediction", {"document": text}).content.decode()
    assert "Would be queued" in prediction and 'hx-post="/submit/smallest-change"' in prediction
    card = dave.post("/submit/smallest-change", {"document": text}).content.decode()
    assert "role worker requested 2 GPUs instead of 4" in card and "Apply to the form" in card


def test_smallest_change_shows_the_work_lost_by_the_workload_that_would_be_ended(
    cast: Cast, dave: Client
) -> None:
    node = make.node(cast.pool, gpus=2)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 64)
    running = make.workload(
        cast.vision, "runs", phase="running", run=1, pool=cast.pool, priority=200, preemptible=False,
        started_at=make.ago(hours=1), gpus=2,
    )  # fmt: skip
    make.place(running, node, [0, 1])
    text = "name: small\nproject: vision\ncommand: run\nroles:\n- gpu: 1\n"
    card = dave.post("/submit/smallest-change", {"document": text}).content.decode()
    shown = words_of(card).replace("\N{NO-BREAK SPACE}", " ")
    assert "if vision/runs ended. vision/runs would lose 2 GPUs and 2.0 GPU-h of work." in shown


def _six_replicas_beside_a_victim(cast: Cast, project: Project) -> str:
    """Fill a node with a preemptible workload of the project, two free GPUs and a non-preemptible workload.

    Return a document with six replicas, two more than fit.
    """
    node = make.node(cast.pool, gpus=8, cpu_milli=64_000, memory_mib=65_536)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 64)
    make.quota(cast.product, cast.pool, 0)
    make.quota(cast.ads, cast.pool, 0)
    low = make.workload(
        project, "low", phase="running", run=1, pool=cast.pool, priority=10, replicas=2,
        started_at=make.ago(hours=1),
    )  # fmt: skip
    fixed = make.workload(
        cast.vision, "fixed", phase="running", run=1, pool=cast.pool, priority=200, preemptible=False,
        replicas=4,
    )  # fmt: skip
    for index in range(2):
        make.place(low, node, [index], index=index)
    for index in range(4):
        make.place(fixed, node, [4 + index], index=index)
    text = f"name: wide\nproject: vision\npools: [{cast.pool.name}]\ncommand: run\npriority: 50\n"
    return text + "roles:\n- {gpu: 1, replicas: 6}\n"


def test_smallest_change_explains_why_only_fewer_replicas_fit(cast: Cast, dave: Client) -> None:
    text = _six_replicas_beside_a_victim(cast, cast.vision)
    card = dave.post("/submit/smallest-change", {"document": text}).content.decode()
    assert "instead of 6." in card and "2 GPUs are free, and the eviction would free 2." in card
    assert "vision/low" in card
    alternative = "Without evictions, it would start now if it had 2 worker replicas instead of 6."
    assert f"Alternative {alternative} Apply the alternative to the form" in words_of(card)
    _, _, button = card.rpartition("<button")
    assert "&quot;roles[0].replicas&quot;, 2" in button


def test_smallest_change_does_not_reveal_the_gpus_of_a_hidden_victim(
    cast: Cast, sign_in: SignIn, dave: Client
) -> None:
    text = _six_replicas_beside_a_victim(cast, cast.ads)
    card = dave.post("/submit/smallest-change", {"document": text}).content.decode()
    assert "a workload of another project" in card
    assert "instead of 6." in card and "would free" not in card
    assert "its quota" not in card, "the rule names the hidden victim's project"
    card = sign_in("alice").post("/submit/smallest-change", {"document": text}).content.decode()
    assert "2 GPUs are free, and the eviction would free 2." in card
    assert "2.0 GPU-h of work lost." in words_of(card).replace("\N{NO-BREAK SPACE}", " ")
    rule = (
        "product has 2 GPUs allocated or reserved, more than its quota of 0 GPUs and its fair share of 0 GPUs"
    )
    assert f"{rule} after this change." in card


def predict_limit_wait(client: Client, pool: str, gpus: int) -> str:
    """Return when the project is expected to be below its limit, as shown in the prediction, or ""."""
    text = f"name: wide\nproject: vision\npools: [{pool}]\ncommand: run\nroles:\n- gpu: {gpus}\n"
    shown = client.post("/submit/prediction", {"document": text}).content.decode()
    assert "limit" in shown
    return shown.partition('id="limit-wait">')[2].partition("</dd>")[0].partition('<dd class="wrap">')[2]


@pytest.mark.heavy
def test_prediction_states_when_the_project_is_expected_to_be_below_its_limit(
    cast: Cast, dave: Client
) -> None:
    node = make.node(cast.pool, gpus=8, cpu_milli=64_000, memory_mib=65_536)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 4, limit_gpu_milli=4000)
    rows = {}
    for device, (name, hours) in enumerate((("first", 2), ("second", 3), ("third", 4), ("endless", None))):
        rows[name] = make.workload(
            cast.vision, name, phase="running", run=1, pool=cast.pool, priority=200, preemptible=False,
            started_at=make.ago(hours=1), max_runtime=hours and hours * 3600,
        )  # fmt: skip
        make.place(rows[name], node, [device])

    def predicted(gpus: int) -> str:
        return predict_limit_wait(dave, cast.pool.name, gpus)

    end = present(rows["first"].started_at) + timedelta(hours=2)
    assert f'datetime="{end:%Y-%m-%dT%H:%M}' in predicted(1)
    assert " at the earliest, " in predicted(1), "other reasons can delay the start"
    assert "<strong>" not in predicted(1)
    first, second = (
        f'<a href="/workloads/{rows[name].pk}">vision/{name}</a>' for name in ("first", "second")
    )
    assert f"when {first} ends<span> and vision has room within its limit" in predicted(1)
    assert second not in predicted(1)
    assert first in predicted(2) and second in predicted(2)
    assert predicted(4) == "", "the fourth workload has no maximum runtime"
    Workload.objects.filter(pk=rows["third"].pk).update(phase="stopping", next_phase="cancelled")
    assert predicted(1) == "", "the third workload ends at an unknown time"


def test_prediction_reads_only_end_times_of_workloads_that_count_towards_the_limit(
    cast: Cast, dave: Client
) -> None:
    node = make.node(cast.pool, gpus=8, cpu_milli=64_000, memory_mib=65_536)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 1, limit_gpu_milli=1000)
    row = make.workload(
        cast.vision, "first", phase="running", run=1, pool=cast.pool, priority=200, preemptible=False,
        started_at=make.ago(), max_runtime=3600,
    )  # fmt: skip
    make.place(row, node, [0])
    with CaptureQueriesContext(connection) as queries:
        assert "vision/first" in predict_limit_wait(dave, cast.pool.name, 1)
    [sql] = [each["sql"] for each in queries if 'AS "end"' in each["sql"]]
    assert '"spec"' not in sql and '"explanation"' not in sql
    assert "LIMIT 100" in sql


def test_prediction_shows_no_time_for_a_quota_group_limit(cast: Cast, dave: Client) -> None:
    other = make.pool("other", gpus=8)
    group = QuotaGroup.objects.create(name="all")
    NodePool.objects.update(quota_group=group)
    for pool in (cast.pool, other):
        make.quota(cast.research, pool, 64)
    Quota.objects.create(project=cast.vision, group=group, gpu_milli=2000, limit_gpu_milli=2000)
    for pool, hours in ((other, 2), (cast.pool, 10)):
        row = make.workload(
            cast.vision, f"ends-in-{hours}-h", phase="running", run=1, pool=pool, pools=[pool.name],
            priority=200, preemptible=False, started_at=make.ago(), max_runtime=hours * 3600,
        )  # fmt: skip
        make.place(row, make.node(pool, gpus=8, cpu_milli=64_000, memory_mib=65_536), [0])
    assert predict_limit_wait(dave, cast.pool.name, 1) == "", "the workload in the other pool ends first"


def test_cost_of_an_elastic_workload_is_a_range(cast: Cast, dave: Client) -> None:
    NodePool.objects.update(price_per_gpu_hour=Decimal("2.50"))
    text = "name: wide\nproject: vision\nkind: elastic\npools: [local]\ncommand: run\nmax_runtime: 8h\n"
    text += "roles:\n- gpu: 1\n  min: 2\n  max: 8\n"
    shown = dave.post("/submit/prediction", {"document": text}).content.decode()
    assert "Cost 40.00 to 160.00 USD for 16 to 64 GPU-hours" in words_of(shown)
    assert "The cost assumes that the workload runs for its entire max runtime." in shown
    text = text.replace("8h", "7d").replace("max: 8", "max: 128").replace("min: 2", "min: 64")
    shown = dave.post("/submit/prediction", {"document": text}).content.decode()
    assert "USD for 10,752 to 21,504 GPU-hours" in words_of(shown)


def words_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.mark.parametrize(
    ("limits", "cost"),
    [
        ("max_runtime: 8h", "Cost Up to 80.00 USD for 32 GPU-hours"),
        ("max_runtime: 8h\narray: {tasks: 5}", "Cost Up to 400.00 USD for 160 GPU-hours"),
        ("priority: 50", "Cost Up to 10.00 USD per hour (no max runtime)"),
        ("array: {tasks: 5}", "Cost Unknown (no max runtime)"),
    ],
)
def test_prediction_states_the_cost_and_the_remaining_budget(
    cast: Cast, dave: Client, limits: str, cost: str
) -> None:
    NodePool.objects.update(price_per_gpu_hour=Decimal("2.50"))
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values={"gpu_hours": 100})
    text = f"name: wide\nproject: vision\npools: [local]\ncommand: run\n{limits}\nroles:\n- gpu: 4\n"
    shown = words_of(dave.post("/submit/prediction", {"document": text}).content.decode())
    left = "Budget left 100 GPU-hours for vision this month"
    assert f"{cost} {left}" in shown


def test_unknown_cost_names_the_pool_without_a_price(cast: Cast, dave: Client) -> None:
    make.pool("free")
    text = "name: wide\nproject: vision\ncommand: run\nmax_runtime: 8h\nroles:\n- gpu: 4\n"
    assert "Cost" not in words_of(dave.post("/submit/prediction", {"document": text}).content.decode())
    NodePool.objects.filter(name="local").update(price_per_gpu_hour=Decimal("2.50"))
    shown = words_of(dave.post("/submit/prediction", {"document": text}).content.decode())
    assert "Cost Unknown (pool free has no price)" in shown
    only_free = text.replace("project: vision", "project: vision\npools: [free]")
    shown = words_of(dave.post("/submit/prediction", {"document": only_free}).content.decode())
    assert "Cost Unknown (pool free has no price)" in shown
    make.node(cast.pool, gpus=8, cpu_milli=64_000, memory_mib=65_536)
    make.quota(cast.vision, cast.pool, 8)
    shown = words_of(dave.post("/submit/prediction", {"document": text}).content.decode())
    assert "pool local" in shown and "Cost Up to 80.00 USD for 32 GPU-hours" in shown, "it would start there"


def test_prediction_states_the_project_budget_before_the_department_budget(
    cast: Cast, sign_in: SignIn
) -> None:
    budgets.set_budget(actor=cast.alice, owner=cast.research, values={"gpu_hours": 5000})
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values={"gpu_hours": 100})
    text = "name: wide\nproject: vision\npools: [local]\ncommand: run\nroles:\n- gpu: 4\n"
    shown = words_of(sign_in("alice").post("/submit/prediction", {"document": text}).content.decode())
    assert "Budget left 100 GPU-hours for vision, 5,000 GPU-hours for research this month" in shown


def test_prediction_warns_of_an_exceeded_budget(cast: Cast, dave: Client) -> None:
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values={"gpu_hours": 4})
    at = timezone.now().replace(minute=0, second=0, microsecond=0)
    UsageHour.objects.create(
        hour=at, pool_id=cast.pool.pk, pool_name="local", department_id=cast.vision.department_id,
        department_name="research", project_id=cast.vision.pk, project_name="vision", user_name="dave",
        gpu_milli_seconds=6 * 3_600_000,
    )  # fmt: skip
    text = "name: wide\nproject: vision\npools: [local]\ncommand: run\nroles:\n- gpu: 4\n"
    shown = dave.post("/submit/prediction", {"document": text}).content.decode()
    over = "Budget vision is over its budget by 2 GPU-hours this month . Budgets do not delay the start."
    assert over in words_of(shown) and "USD" not in shown
    assert '<span class="warn">vision is over' in shown
    assert 'by 2 <span class="nowrap">GPU-hours</span>' in shown, "the unit is not broken"


def test_smallest_change_is_found_while_the_pool_has_too_few_ready_nodes(cast: Cast, dave: Client) -> None:
    make.node(cast.pool, gpus=2)
    NodePool.objects.update(operational_since=None, ready_threshold=3)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 64)
    text = "name: wide\nproject: vision\ncommand: run\nroles:\n- gpu: 4\n"
    card = dave.post("/submit/smallest-change", {"document": text}).content.decode()
    assert "could start once resources are free if each replica of role worker requested 2 GPUs" in card


def test_prediction_for_several_pools_names_the_pool_that_its_numbers_refer_to(
    cast: Cast, dave: Client
) -> None:
    for pool in (cast.pool, make.pool("spare")):
        node = make.node(pool, gpus=8)
        make.quota(cast.research, pool, 2)
        make.quota(cast.vision, pool, 1)
        make.place(make.workload(cast.ads, pool.name, phase="running", run=1, pool=pool), node, [0, 1])
    NodePool.objects.update(nodes_max=1)
    text = "name: wide\nproject: vision\ncommand: run\nroles:\n- {gpu: 2, replicas: 4}\n"
    for pools, where in (("[spare]", ""), (f"[{cast.pool.name}, spare]", f" in ({cast.pool.name}|spare)")):
        form = {"document": f"{text}pools: {pools}\n"}
        prediction = dave.post("/submit/prediction", form).content.decode()
        words = " ".join(re.sub(r"<[^>]+>", " ", unescape(prediction)).split())
        assert re.search(f"6 are free{where}. ", words), words
        assert re.search(f"have 2 GPUs allocated in pool ({cast.pool.name}|spare), ", words), words


def test_prediction_is_for_the_pool_with_the_earliest_start(cast: Cast, dave: Client) -> None:
    for pool, hours in ((cast.pool, 3), (make.pool("spare"), 2)):
        make.quota(cast.research, pool, 8)
        make.quota(cast.vision, pool, 0 if hours == 2 else 8)
        row = make.workload(
            cast.ads, pool.name, phase="running", run=1, pool=pool, max_runtime=hours * 3600,
            started_at=make.ago(hours=1), preemptible=False,
        )  # fmt: skip
        make.place(row, make.node(pool, gpus=8), [*range(8)])
    NodePool.objects.update(nodes_max=1)
    text = f"name: wide\nproject: vision\ncommand: run\nroles:\n- gpu: 8\npools: [{cast.pool.name}, spare]\n"
    prediction = dave.post("/submit/prediction", {"document": text}).content.decode()
    words = " ".join(re.sub(r"<[^>]+>", " ", unescape(prediction)).split())
    assert re.search(r"Expected start About \S+ \S+ UTC in pool spare ?,", words), words
