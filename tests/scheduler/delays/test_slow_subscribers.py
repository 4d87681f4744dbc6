"""Tests that no subscriber, notification task or deletion of a subscription delays a cycle."""

from typing import Any

import pytest
from django.db import connection, transaction

from berth.core.spec.values.addresses import Channel
from projects.models import Delivery, Phase, Subscription, Workload
from projects.services.notifications import deliveries
from projects.services.notifications.notify import lock_subscription
from tests.scheduler.stage import Stage
from tests.support.crashes import listening
from tests.support.second_connection import run_on_second_connection


@pytest.fixture
def subscription(stage: Stage) -> Subscription:
    return Subscription.objects.create(
        to="https://hooks.example.org/1", channel=Channel.WEBHOOK, events=["started"]
    )


def tick_without_waiting(stage: Stage, times: int) -> None:
    """Run ticks on a second connection, on which waiting for a lock is an error."""

    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '1s'")
        stage.tick(times)

    answer = run_on_second_connection(run)
    assert answer is None, answer


def test_locked_subscription_does_not_delay_a_cycle(stage: Stage, subscription: Subscription) -> None:
    workload = stage.submit()
    with transaction.atomic():
        assert lock_subscription(subscription.pk) == subscription
        tick_without_waiting(stage, 2)
    assert stage.phase(workload) == Phase.RUNNING
    assert Delivery.objects.filter(kind="started", subscription_id=subscription.pk).exists()


def test_subscription_is_notified_by_one_task_at_a_time(stage: Stage, subscription: Subscription) -> None:
    def lock() -> Subscription | None:
        with transaction.atomic():
            return lock_subscription(subscription.pk)

    with transaction.atomic():
        assert lock() == subscription
        assert run_on_second_connection(lock) is None


def test_subscription_deleted_during_a_commit_does_not_abort_the_commit(
    stage: Stage, subscription: Subscription
) -> None:
    workload, pk = stage.submit(), subscription.pk
    stage.tick()

    def delete_before_the_commit_ends(point: str) -> None:
        if point == "reports.before_end" and Subscription.objects.filter(pk=pk).exists():
            answer = run_on_second_connection(subscription.delete)
            assert not isinstance(answer, Exception), answer

    with listening(delete_before_the_commit_ends):
        stage.tick()
    assert not Subscription.objects.exists()
    assert stage.phase(workload) == Phase.RUNNING
    assert Delivery.objects.get(kind="started").subscription_id == pk


def test_unresponsive_webhook_does_not_delay_a_cycle(
    stage: Stage, subscription: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stage.submit("first"), stage.submit("second")
    stage.tick(2)
    delivery = Delivery.objects.get(workload_id=first.pk)
    phases: list[Any] = []

    def respond_after_two_cycles(row: Delivery, now: object) -> None:
        stage.finish(first)
        tick_without_waiting(stage, 2)
        phases.extend(Workload.objects.order_by("name").values_list("phase", flat=True))

    monkeypatch.setattr(deliveries, "send", respond_after_two_cycles)
    assert deliveries.deliver(delivery.pk, delivery.next_attempt_at)
    assert phases == [Phase.COMPLETED, Phase.RUNNING]
    assert stage.phase(second) == Phase.RUNNING
