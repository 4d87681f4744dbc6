"""Tests that the cost of each workload is exact and agrees with usage reports."""

import json
from datetime import timedelta
from decimal import Decimal

from pools.models import NodePool, PoolPrice
from projects.api.workloads.schemas import serialize_workload
from projects.models import Workload
from projects.queries.costs import array_costs, workload_costs
from projects.services import arrays
from projects.services.workloads import control
from scheduler.reports.usage.query import usage_request
from scheduler.reports.usage.report import sum_rows, usage_report
from tests.cast import training
from tests.scheduler.stage import NOON, Stage

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]


def usage_cost(stage: Stage) -> Decimal | None:
    now = stage.clock.now()
    return sum_rows(usage_report(stage.cast.alice, usage_request(now, since=NOON), now)).cost


def second_pool(stage: Stage) -> NodePool:
    pool = NodePool.objects.create(
        name="cloud", provider="fake", runtime="fake", nodes_min=1, gpus_per_node=2, cpu_milli=8000,
        memory_mib=16384, price_per_gpu_hour=Decimal(10),
    )  # fmt: skip
    stage.node(0, pool)
    return pool


def run_for(stage: Stage, workload: Workload, seconds: float) -> None:
    """Run the workload for exactly this time, then suspend it."""
    stage.tick()
    stage.clock.advance(seconds)
    control.suspend(actor=stage.cast.alice, workload=workload, now=stage.clock.now())
    stage.tick(2)
    assert stage.phase(workload) == "suspended"


def test_cost_of_all_runs_agrees_with_the_usage_report(stage: Stage) -> None:
    local = stage.cast.pool
    NodePool.objects.filter(pk=local.pk).update(price_per_gpu_hour=Decimal(4))
    cloud = second_pool(stage)
    moved, other = (stage.submit(name, roles=ONE, pools=[local.name]) for name in ("moved", "other"))
    run_for(stage, moved, 3600)
    first_run = workload_costs([moved.pk], stage.clock.now())[moved.pk]
    assert Decimal("4.0") <= first_run < Decimal("4.1")
    PoolPrice.objects.create(pool=local, until=NOON + timedelta(minutes=30), price_per_gpu_hour=Decimal(1))
    assert workload_costs([moved.pk], stage.clock.now())[moved.pk] < Decimal("1.1")  # the first hour costs 1

    Workload.objects.filter(pk=moved.pk).update(pools=[cloud.name])
    moved.refresh_from_db()
    stage.loop = stage.new_loop()
    control.resume(actor=stage.cast.alice, workload=moved, now=stage.clock.now())
    stage.tick()
    assert Workload.objects.get(pk=moved.pk).pool == cloud
    stage.clock.advance(1800)
    costs = workload_costs([moved.pk, other.pk], stage.clock.now())
    assert Decimal("6.0") <= costs[moved.pk] < Decimal("6.1")
    assert sum(costs.values(), Decimal(0)).quantize(Decimal("0.01")) == usage_cost(stage)

    shown = json.loads(serialize_workload(other).model_dump_json())["cost"]
    assert isinstance(shown["amount"], str)
    assert (Decimal(shown["amount"]) > costs[other.pk], shown["currency"]) == (True, "USD")


def test_cost_is_unknown_without_a_price_and_before_the_first_run(stage: Stage) -> None:
    running = stage.submit("running", roles=ONE)
    stage.tick()
    stage.clock.advance(3600)
    pending = stage.submit("pending", roles=ONE)
    now = stage.clock.now()
    assert workload_costs([running.pk, pending.pk], now) == {}
    NodePool.objects.update(price_per_gpu_hour=Decimal(2))
    assert set(workload_costs([running.pk, pending.pk], now)) == {running.pk}


def test_array_cost_is_the_sum_of_its_task_costs(stage: Stage) -> None:
    NodePool.objects.update(price_per_gpu_hour=Decimal(2))
    document = {**training("sweep", project="vision", roles=ONE), "array": {"tasks": 2}}
    array = arrays.submit(actor=stage.cast.dave, document=document).array
    stage.tick(2)
    stage.clock.advance(3600)
    now = stage.clock.now()
    tasks = list(array.tasks.values_list("pk", flat=True))
    costs = workload_costs(tasks, now)
    assert len(costs) == 2
    assert array_costs([array.pk], now) == {array.pk: sum(costs.values())}
