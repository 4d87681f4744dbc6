"""Tests for failed boots over REST, on the pool page and in notifications. Moto simulates EC2."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from berth.server import wiring
from pools.engine.boots import MAX_DELAY, MIN_DELAY, boot_retry_delay, should_stop_provisioning
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import PENDING
from pools.reconciler import reconcile
from pools.services.failed_boots import record_failed_boot
from projects.models import Delivery
from projects.services.notifications import notify
from projects.services.notifications.subscriptions import subscribe
from scheduler.loop.observe.nodes import engine_pool
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.harness.samples import sample
from tests.pools.aws.ec2_account import IMAGE_PARAMETER, REGION, TWO_GPUS, Ec2Account, ec2_account, subnets
from tests.pools.aws.ec2_proxy import Fault
from tests.pools.stage import START

pytestmark = pytest.mark.django_db
PATH = "node-pools/cloud"
BOOT_TIMEOUT_REASON = "not ready within 60 s"


class Ec2Pool:
    """An EC2 pool whose instances start but do not join. Tests advance its clock."""

    def __init__(self, alice: Caller, place: Ec2Account) -> None:
        self.alice, self.place, self.now = alice, place, START

    def create(self, purchase: str = "on_demand", **values: object) -> None:
        settings = {
            "region": REGION, "instance_types": [TWO_GPUS], "subnets": subnets()[:1],
            "image_parameter": IMAGE_PARAMETER, "purchase": purchase,
        }  # fmt: skip
        shape = {"gpus_per_node": 2, "cpu": 8, "memory_mib": 8192, "runtime": "ray"}
        made = {"name": "cloud", "provider": "aws", "nodes": 2, "boot_timeout": 60, **shape, **values}
        answer = self.alice.post("node-pools", {**made, "provider_settings": settings})
        assert answer.status_code == 201, answer.content

    def run(self, seconds: int, step: int = 15) -> None:
        pool = NodePool.objects.get(name="cloud")
        for _ in range(0, seconds, step):
            reconcile(pool.pk, provider=wiring.load_wiring().provider_for(pool), now=self.now)
            self.now += timedelta(seconds=step)

    def join(self) -> None:
        Node.objects.filter(state__in=PENDING).update(joined_at=self.now)

    @property
    def launches(self) -> list[int]:
        events = ScalingEvent.objects.filter(kind="provision").order_by("pk")
        return [round((event.at - START).total_seconds()) for event in events]

    @property
    def answer(self) -> dict[str, Any]:
        return dict(self.alice.get(PATH).json())


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Ec2Account]:
    with ec2_account(monkeypatch) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        settings.BERTH_PUBLIC_URL = "https://berth.example.org"
        wiring.aws_provider.cache_clear()
        yield server
        wiring.aws_provider.cache_clear()


@pytest.fixture
def cloud(alice: Caller, place: Ec2Account) -> Ec2Pool:
    return Ec2Pool(alice, place)


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_repeated_boot_failures_delay_and_then_stop_provisioning(cloud: Ec2Pool) -> None:
    cloud.create(boot_failure_limit=3)
    cloud.run(75)
    answer = cloud.answer
    assert (answer["state"], answer["boot_failures"], answer["provisioning_stopped"]) == ("failing", 1, False)
    assert (
        answer["last_error"] == f"Failed boot 1 of 3 (cloud-0): {BOOT_TIMEOUT_REASON}. Next attempt in 30 s."
    )
    assert parse_time(answer["boot_retry_at"]) == START + timedelta(seconds=90)
    cloud.run(225)
    cloud.run(3300, step=300)
    assert cloud.launches == [0, 90, 210], "60 s to boot, then 30 and 60 s of delay"
    assert len(cloud.place.proxy.launched["on-demand"]) == 6
    assert cloud.place.proxy.living() == set()
    answer = cloud.answer
    assert (answer["state"], answer["boot_failures"], answer["provisioning_stopped"]) == ("failing", 3, True)
    assert answer["boot_retry_at"] is None
    assert answer["last_error"] == (
        f"Provisioning stopped after 3 failed boots in a row. Latest (cloud-0): {BOOT_TIMEOUT_REASON}. "
        "Fix the cause, then run `berth pool retry cloud`."
    )
    history = cloud.alice.get(f"{PATH}/history", kind="boot_failed").json()["items"]
    assert [event["data"]["failures"] for event in history] == [3, 2, 1], (
        "two nodes in one order count as one failure"
    )
    assert history[0]["data"]["stopped"] is True


@pytest.mark.heavy
def test_retrying_editing_or_resuming_a_pool_starts_provisioning_immediately(cloud: Ec2Pool) -> None:
    cloud.create(boot_failure_limit=1)
    for action in ("retry", "edit", "resume"):
        cloud.run(75)
        launches = len(cloud.launches)
        cloud.run(210, step=105)
        assert len(cloud.launches) == launches
        if action == "edit":
            changed = cloud.alice("PATCH", PATH, {"boot_timeout": 50}, headers={"If-Match": "*"})
        else:
            changed = cloud.alice.post(f"{PATH}/{action}")
        assert changed.status_code == 200, changed.content
        answer = changed.json()
        assert (answer["state"], answer["boot_failures"], answer["last_error"]) == ("active", 0, "")
        retried = ScalingEvent.objects.filter(kind="retried").latest("pk")
        assert retried.reason.endswith("by alice: failed boots reset to 0")
        restarted = round((cloud.now - START).total_seconds())
        cloud.run(15)
        assert cloud.launches[-1] == restarted, action
    cloud.join()
    cloud.run(30)
    assert (cloud.answer["nodes_ready"], cloud.answer["state"]) == (2, "active")


def test_joined_node_resets_the_failed_boot_count(cloud: Ec2Pool) -> None:
    cloud.create(boot_failure_limit=3)
    cloud.run(105)
    assert (cloud.answer["boot_failures"], cloud.launches) == (1, [0, 90])
    assert cloud.answer["state"] == "failing", "the pool is failing until a node of the second order is ready"
    cloud.join()
    cloud.run(15)
    answer = cloud.answer
    assert (answer["state"], answer["boot_failures"], answer["nodes_ready"]) == ("active", 0, 2)


def test_terminated_machine_that_never_joined_counts_as_a_failed_boot(cloud: Ec2Pool) -> None:
    cloud.create(boot_failure_limit=2, nodes=1, boot_timeout=900)
    for _ in range(20):
        cloud.run(15)
        for node in Node.objects.filter(state="booting"):
            cloud.place.clients().ec2.terminate_instances(InstanceIds=[node.instance_id])
    assert (len(cloud.launches), cloud.answer["provisioning_stopped"]) == (2, True)
    assert "instance is gone" in cloud.answer["last_error"]


@pytest.mark.heavy
@pytest.mark.parametrize("is_noticed", sample([True, False], 1))
def test_spot_interruption_during_a_boot_is_not_counted_as_a_failed_boot(
    cloud: Ec2Pool, is_noticed: bool
) -> None:
    cloud.create("spot", boot_failure_limit=1, nodes=1, boot_timeout=900)
    cloud.run(30)
    node = Node.objects.get(state="booting")
    if is_noticed:
        cloud.place.proxy.interrupt_spot_machine(node.instance_id, cloud.now)
    else:
        cloud.place.proxy.end_spot_machine(node.instance_id)
    cloud.run(30)
    node.refresh_from_db()
    assert node.state in ("lost", "ended")
    answer = cloud.answer
    assert (answer["state"], answer["boot_failures"], answer["last_error"]) == ("active", 0, "")
    assert len(cloud.launches) == 2, "the replacement is ordered without delay"
    [interruption] = cloud.alice.get(f"{PATH}/history", kind="interruption").json()["items"]
    expected = "EC2 will interrupt" if is_noticed else "EC2 has interrupted"
    assert interruption["reason"] == f"{expected} this spot instance"


@pytest.mark.heavy
def test_subscribers_are_notified_of_the_first_failed_boot_and_when_provisioning_stops(
    cloud: Ec2Pool, cast: Cast
) -> None:
    subscribe(actor=cast.alice, scope=None, to="ops@example.org", events=["pool"])
    cloud.create(boot_failure_limit=2)
    cloud.run(75)
    assert [notify.notify_about_pools(cloud.now), notify.notify_about_pools(cloud.now)] == [1, 0]
    cloud.run(300)
    assert [notify.notify_about_pools(cloud.now), notify.notify_about_pools(cloud.now)] == [1, 0]
    sent = [(delivery.to, delivery.content["stopped"]) for delivery in Delivery.objects.order_by("pk")]
    assert sent == [("ops@example.org", False), ("ops@example.org", True)]


@pytest.mark.heavy
def test_pool_with_stopped_provisioning_does_not_scale_up_until_retried(
    cloud: Ec2Pool, bob: Caller, cast: Cast
) -> None:
    cloud.create(boot_failure_limit=1, nodes={"min": 1, "max": 4})
    assert engine_pool(NodePool.objects.get(name="cloud"), cloud.now).nodes_max == 4
    cloud.run(75)
    assert engine_pool(NodePool.objects.get(name="cloud"), cloud.now).nodes_max is None

    answer = bob.get(PATH).json()  # only platform admins see the reason
    assert (answer["state"], answer["last_error"], answer["provisioning_stopped"]) == ("failing", None, True)
    assert bob.post(f"{PATH}/retry").status_code == 403

    stopped = cloud.answer["last_error"]
    cloud.place.proxy.next("DescribeInstances", Fault("ExpiredToken"))
    cloud.run(15)
    assert cloud.answer["last_error"].startswith("could not list instances (credentials)")
    cloud.run(30)
    assert cloud.answer["last_error"] == stopped
    assert_page_shows_the_failure_and_retries(cast)


def assert_page_shows_the_failure_and_retries(cast: Cast) -> None:
    client = Client()
    client.force_login(cast.alice.user)
    page = client.get("/node-pools/cloud").content.decode()
    assert '<span class="chip bad">Failing</span>' in page
    stopped = "Provisioning stopped after 1 failed boot."
    assert page.count(stopped) == 2, "the notice and the diagnosis say so"
    assert client.get("/node-pools/cloud?tab=history").content.decode().count(stopped) == 2, (
        "also the history"
    )
    assert 'href="/node-pools/cloud/retry"' in page
    assert '<span class="chip bad">Failing</span>' in client.get("/node-pools").content.decode()
    confirmation = client.get("/node-pools/cloud/retry").content.decode()
    assert "Provisioning starts again immediately" in confirmation
    assert NodePool.objects.get(name="cloud").boot_failures == 1, "the confirmation changes nothing"
    assert client.post("/node-pools/cloud/retry", headers={"HX-Request": "true"}).status_code == 204
    assert NodePool.objects.get(name="cloud").boot_failures == 0


@pytest.mark.heavy
def test_provisioning_never_stops_if_the_failed_boot_limit_is_zero() -> None:
    assert [boot_retry_delay(n) for n in range(5)] == [0, MIN_DELAY, 60, 120, 240]
    assert boot_retry_delay(50) == MAX_DELAY
    assert not should_stop_provisioning(1000, 0)
    assert [should_stop_provisioning(n, 3) for n in (0, 2, 3, 4)] == [False, False, True, True]


@pytest.mark.heavy
def test_reason_ending_in_punctuation_gets_no_second_period(cast: Cast) -> None:
    for number, output in enumerate(("Is the driver installed and running.", "Error:", "Error: .")):
        node = make.node(cast.pool, ordinal=number, client_token=f"order-{number}")
        record_failed_boot(node, f"start script failed with exit code 9: {output}", at=timezone.now())
        assert f": {output.rstrip(' .:')}. Next attempt in " in NodePool.objects.get().last_error
