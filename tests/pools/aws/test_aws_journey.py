"""Tests for an EC2 pool from demand to nodes and back."""

import base64
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from berth.server import wiring
from pools import selectors, services
from pools.models import Node, NodePool, ScalingEvent
from pools.reconciler import reconcile
from pools.services.joining import MachineReport
from tests.pools.aws.ec2_account import IMAGE_PARAMETER, REGION, TWO_GPUS, Ec2Account, ec2_account, subnets
from tests.pools.stage import START, pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Ec2Account]:
    """Configure the account through environment variables, as in production."""
    with ec2_account(monkeypatch) as ec2:
        monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.url)
        settings.BERTH_PUBLIC_URL = "https://berth.example.org"
        wiring.aws_provider.cache_clear()
        yield ec2
        wiring.aws_provider.cache_clear()


def test_ec2_pool_scales_up_and_back_down(place: Ec2Account) -> None:
    provider_settings = {
        "region": REGION, "instance_types": [TWO_GPUS], "subnets": subnets()[:1],
        "image_parameter": IMAGE_PARAMETER,
    }  # fmt: skip
    ec2_pool = pool((0, 2), provider="aws", provider_settings=provider_settings)
    NodePool.objects.update(nodes_desired=1)
    clock = iter(START + timedelta(seconds=15 * n) for n in range(20))

    def tick_and_get_state() -> str:
        reconcile(ec2_pool.pk, provider=wiring.load_wiring().provider_for(ec2_pool), now=next(clock))
        return str(Node.objects.latest("pk").state)

    assert tick_and_get_state() == "requested"
    assert tick_and_get_state() == "booting", "the machine runs but has not joined"
    node = Node.objects.get()
    secret = joined(place, node)
    assert tick_and_get_state() == "ready"
    node.refresh_from_db()
    assert (node.devices, node.address, node.cpu_milli) == (["GPU-x", "GPU-y"], "10.9.9.9", 8000)
    reporting_node = services.record_report(secret, at=START)
    assert reporting_node == node
    NodePool.objects.update(nodes_desired=0)
    assert tick_and_get_state() == "draining"
    services.mark_node_emptied(node)
    assert tick_and_get_state() == "ended"
    assert place.proxy.living() == set()
    kinds = [event.kind for event in ScalingEvent.objects.order_by("pk")]
    assert kinds == ["provision", "joined", "ready", "drain", "terminate"]


def joined(place: Ec2Account, node: Node) -> str:
    """Join as the node's machine does, with the token from its user data and the instance ID from EC2."""
    ec2 = place.clients().ec2
    attribute = ec2.describe_instance_attribute(InstanceId=node.instance_id, Attribute="userData")
    user_data = base64.b64decode(attribute["UserData"]["Value"]).decode()
    assert "BERTH_URL=https://berth.example.org\n" in user_data
    token = re.search(r"BERTH_JOIN_TOKEN=(\S+)", user_data)
    assert token is not None
    instance = ec2.describe_instances(InstanceIds=[node.instance_id])["Reservations"][0]["Instances"][0]
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["berth:installation"] == selectors.installation_name()
    report = MachineReport(
        "ip-10-9-9-9", "10.9.9.9", 48_000, 180_000, ("GPU-x", "GPU-y"), "L40S", node.instance_id
    )
    return services.join(pool_name="small", token=token[1], measured=report, at=START)


def test_generated_installation_name_is_stable_and_can_be_configured(settings: Any) -> None:
    first = selectors.installation_name()
    assert first
    assert selectors.installation_name() == first
    settings.BERTH_INSTALLATION = "staging"
    assert selectors.installation_name() == "staging"
