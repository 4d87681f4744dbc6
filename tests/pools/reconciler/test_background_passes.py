"""Tests that pools with a slow provider are reconciled outside the main loop, one pass at a time."""

import threading
from collections.abc import Iterator

import pytest

from pools.models import Node
from pools.providers.base import LaunchRequest, ProvisionResult
from pools.reconciler import reconcile
from pools.reconciler.background import BackgroundReconciler
from tests.fakes.provider import FakeProvider
from tests.pools.stage import START, pool

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 120


class SlowProvider(FakeProvider):
    """A provider that does not respond to a launch request until the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered, self.allowed = threading.Event(), threading.Event()

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        self.ordered.set()
        assert self.allowed.wait(PATIENCE)
        return super().provision(order)


@pytest.fixture
def background_reconciler() -> Iterator[BackgroundReconciler]:
    background = BackgroundReconciler()
    yield background
    background.end()


def test_slow_launch_runs_once_and_does_not_block_ticks(background_reconciler: BackgroundReconciler) -> None:
    created, provider = pool(2), SlowProvider()

    def run_pass() -> bool:
        return reconcile(created.pk, provider=provider, now=START)

    assert not background_reconciler.reconcile(created.pk, run_pass)
    assert provider.ordered.wait(PATIENCE)
    for _ in range(3):
        assert not background_reconciler.reconcile(created.pk, run_pass), "the pass is still running"
    assert provider.count("provision") == 0
    assert not Node.objects.exists()
    provider.allowed.set()
    background_reconciler._passes[created.pk].result(PATIENCE)
    assert background_reconciler.reconcile(created.pk, run_pass), "the next call returns the outcome"
    background_reconciler.end()
    assert provider.count("provision") == 1
    assert Node.objects.filter(state="ready").count() == 2


@pytest.mark.heavy
def test_failed_reconcile_pass_is_reported_and_does_not_prevent_the_next_pass(
    background_reconciler: BackgroundReconciler,
) -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    background_reconciler.reconcile(1, broken)
    with pytest.raises(ZeroDivisionError):
        background_reconciler._passes[1].exception(PATIENCE)
        background_reconciler.reconcile(1, lambda: True)
    assert not background_reconciler.reconcile(1, lambda: True)
    background_reconciler._passes[1].result(PATIENCE)
    assert background_reconciler.reconcile(1, lambda: True)
