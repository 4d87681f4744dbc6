"""Tests for node pool metrics in Prometheus format."""

import pytest

from pools.services import report_pressure, set_nodes_desired
from tests import factories as make
from tests.cast import Cast
from tests.pools.stage import Stage
from tests.support.scraping import scraped

pytestmark = pytest.mark.django_db


def metric_lines() -> list[str]:
    return scraped().splitlines()


def test_provisioning_outcomes_and_scaling_decisions_are_counted(cast: Cast) -> None:
    from pools.providers.base import ProviderErrorKind
    from tests.fakes.provider import Fail

    stage = Stage(cast.pool)
    stage.provider.next("provision", Fail(ProviderErrorKind.QUOTA), Fail(ProviderErrorKind.QUOTA))
    report_pressure(cast.pool.pk, queued=4000, running=0, capacity=0, gang_nodes=0, at=stage.now)
    for _ in range(3):
        stage.reconcile()
        stage.pass_time(15)
    set_nodes_desired(actor=cast.alice, pool=cast.pool, nodes_desired=3)
    lines = metric_lines()
    for line in (
        'berth_pool_provision_calls_total{outcome="quota",pool="local"} 2.0',
        'berth_pool_provision_calls_total{outcome="all",pool="local"} 1.0',
        'berth_pool_scaling_decisions_total{pool="local",reason="queued"} 1.0',
        'berth_pool_scaling_decisions_total{pool="local",reason="by_hand"} 1.0',
        'berth_pool_nodes_desired{pool="local"} 3.0',
        'berth_pool_nodes_current{pool="local"} 2.0',
    ):
        assert line in lines


@pytest.mark.heavy
def test_costs_are_exported_for_pools_with_a_price(cast: Cast) -> None:
    make.node(cast.pool, state="draining", drain_started_at=make.ago(hours=1), created_at=make.ago(hours=3))
    assert not [line for line in metric_lines() if line.startswith("berth_pool_cost_per_hour{")]
    cast.pool.price_per_gpu_hour = 2
    cast.pool.save()
    lines = metric_lines()
    assert 'berth_pool_cost_per_hour{pool="local"} 4.0' in lines
    assert 'berth_pool_nodes_draining{pool="local"} 1.0' in lines
    hours = next(line for line in lines if line.startswith('berth_pool_node_hours_total{pool="local"}'))
    gpus = next(line for line in lines if line.startswith('berth_pool_gpu_hours_total{pool="local"}'))
    assert 3 <= float(hours.split()[1]) < 3.1
    assert 6 <= float(gpus.split()[1]) < 6.2


def test_every_metric_is_documented(cast: Cast) -> None:
    from pathlib import Path

    exported = {line.split()[2] for line in metric_lines() if line.startswith("# TYPE ")}
    text = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    assert [name for name in sorted(exported) if f"`{name}`" not in text] == []
