"""Tests for the EC2 provider through the real SDK."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from berth.core.errors import Invalid
from pools.providers.aws import instances
from pools.providers.aws.clients import Clients
from pools.providers.aws.errors import classify_error
from pools.providers.aws.prices import price_per_gpu_hour
from pools.providers.aws.settings import aws_settings
from pools.providers.base import InstanceState, ProviderError, ProviderErrorKind, Shape
from tests.harness.samples import sample
from tests.pools.aws.ec2_account import REGION, TWO_GPUS, USER_DATA, Ec2Account, ec2_account, order, subnets
from tests.pools.aws.ec2_model import violations
from tests.pools.aws.ec2_proxy import Fault

Kind = ProviderErrorKind


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Account]:
    with ec2_account(monkeypatch) as ec2:
        yield ec2


def recorded_requests(place: Ec2Account, operation: str) -> list[dict[str, Any]]:
    return [params for _, name, params in place.calls if name == operation]


def test_every_request_matches_the_ec2_service_model(place: Ec2Account) -> None:
    # The model defines the name, type, allowed values and length of each parameter.
    rich: dict[str, Any] = {
        "purchase": "spot_then_on_demand", "spot_price_max": 1.5, "instance_profile": "berth-node",
        "volume_gib": 200, "on_demand_allocation": "prioritized", "subnets": subnets()[:2],
    }  # fmt: skip
    place.proxy.capacity["spot"] = 1
    for settings in (rich, {"image": "ami-0123456789abcdef0", "security_groups": ["sg-0123"]}):
        provider = place.provider(**settings)
        created = provider.provision(order("t-" + str(len(settings))))
        provider.list_instances("small")
        provider.terminate("small", [created.instances[0].instance_id])
    operations = {name for _, name, _ in place.calls}
    assert operations >= {
        "CreateFleet", "CreateLaunchTemplate", "CreateSecurityGroup", "CreateTags", "GetParameter",
        "DescribeSpotInstanceRequests", "TerminateInstances", "DeleteLaunchTemplate",
    }  # fmt: skip
    assert [violation for call in place.calls for violation in violations(*call)] == []


def test_machine_opens_no_port_and_requires_imds_v2(place: Ec2Account) -> None:
    place.provider(instance_profile="berth-node").provision(order())
    (template,) = recorded_requests(place, "CreateLaunchTemplate")
    data = template["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["IamInstanceProfile"] == {"Name": "berth-node"}
    assert "KeyName" not in data
    (rule,) = recorded_requests(place, "AuthorizeSecurityGroupIngress")
    (permission,) = rule["IpPermissions"]
    assert permission == {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": rule["GroupId"]}]}
    assert data["SecurityGroupIds"] == [rule["GroupId"]]
    fleet = recorded_requests(place, "CreateFleet")[0]
    reference = fleet["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]
    assert base64.b64decode(reference["LaunchTemplateSpecificationUserData"]).decode() == USER_DATA


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("purchase", "tags_requests"),
    sample([("on_demand", [False]), ("spot", [True]), ("spot_then_on_demand", [True, False])], 2),
)
def test_only_spot_launches_tag_spot_requests(
    place: Ec2Account, purchase: str, tags_requests: list[bool]
) -> None:
    # EC2 rejects on-demand launches whose template tags spot requests.
    provider = place.provider(purchase=purchase)
    for token in ("t-1", "t-2"):
        provider.provision(order(token))
    created = [
        [tagged["ResourceType"] for tagged in template["LaunchTemplateData"]["TagSpecifications"]]
        for template in recorded_requests(place, "CreateLaunchTemplate")
    ]
    assert ["spot-instances-request" in kinds for kinds in created] == tags_requests
    assert recorded_requests(place, "DeleteLaunchTemplate") == []


@pytest.mark.heavy
def test_existing_aws_resources_are_not_created_again(place: Ec2Account) -> None:
    provider = place.provider()
    provider.provision(order("t-1"))
    provider.provision(order("t-2", start=2))
    assert (
        len(recorded_requests(place, "CreateSecurityGroup"))
        == len(recorded_requests(place, "CreateLaunchTemplate"))
        == 1
    )
    place.provider(volume_gib=100).provision(order("t-3", start=4))
    assert len(recorded_requests(place, "CreateLaunchTemplate")) == 2
    assert len(recorded_requests(place, "DeleteLaunchTemplate")) == 1, "the template that is no longer used"


def test_machines_are_tagged_with_installation_and_pool(place: Ec2Account) -> None:
    created = place.provider().provision(order(start=3, tags={"team": "vision"})).instances
    description = place.clients().ec2.describe_instances(InstanceIds=[created[0].instance_id])
    (instance,) = description["Reservations"][0]["Instances"]
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags.items() >= {
        "berth:installation": place.installation, "berth:pool": "small", "berth:order": "t-1",
        "berth:ordinal": "3", "berth:node": "small-3", "Name": "small-3", "team": "vision",
    }.items()  # fmt: skip


@pytest.mark.heavy
def test_instance_listing_reads_all_pages(place: Ec2Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "PAGE", 5)
    provider = place.provider()
    created = [provider.provision(order(f"t-{n}", count=1, start=n)).instances[0] for n in range(7)]
    before = place.proxy.count("DescribeInstances")
    assert list(provider.list_instances("small")) == created
    assert place.proxy.count("DescribeInstances") - before == 2
    provider.terminate("small", [instance.instance_id for instance in created])
    assert place.proxy.living() == set()


def test_other_installations_in_the_account_are_ignored(place: Ec2Account) -> None:
    other_instances = place.provider().provision(order()).instances
    place.installation = "another"
    provider = place.provider()
    assert provider.list_instances("small") == ()
    provider.terminate("small", [instance.instance_id for instance in other_instances])
    assert len(place.proxy.living()) == 2


@pytest.mark.parametrize(
    ("purchase", "spot", "launched"),
    sample(
        [
            ("on_demand", None, {"spot": 0, "on-demand": 3}),
            ("spot", 2, {"spot": 2, "on-demand": 0}),
            ("spot_then_on_demand", None, {"spot": 3, "on-demand": 0}),
            ("spot_then_on_demand", 1, {"spot": 1, "on-demand": 2}),
            ("spot_then_on_demand", 0, {"spot": 0, "on-demand": 3}),
        ],
        2,
    ),
)
def test_purchase_setting_selects_spot_or_on_demand_instances(
    place: Ec2Account, purchase: str, spot: int | None, launched: dict[str, int]
) -> None:
    place.proxy.capacity["spot"] = spot
    created = place.provider(purchase=purchase).provision(order(count=3))
    assert {kind: len(ids) for kind, ids in place.proxy.launched.items()} == launched
    assert [instance.ordinal for instance in created.instances] == list(range(sum(launched.values())))
    assert bool(created.message) == (spot is not None)


@pytest.mark.parametrize(
    ("code", "kind"),
    sample(
        [
            ("InsufficientInstanceCapacity", Kind.CAPACITY),
            ("VcpuLimitExceeded", Kind.QUOTA),
            ("MaxSpotInstanceCountExceeded", Kind.QUOTA),
            ("UnauthorizedOperation", Kind.CREDENTIALS),
            ("InvalidSubnetID.NotFound", Kind.SETTINGS),
            ("AnUnknownErrorCode", Kind.CAPACITY),  # EC2 has responded, so the outcome is certain
        ],
        2,
    ),
)
def test_launch_failures_are_classified(place: Ec2Account, code: str, kind: Kind) -> None:
    place.proxy.capacity["on-demand"], place.proxy.short_of = 0, code
    with pytest.raises(ProviderError) as raised:
        place.provider().provision(order())
    assert (raised.value.kind, raised.value.message) == (kind, f"{code}: no capacity in this test")


@pytest.mark.parametrize(
    ("code", "kind"),
    sample(
        [
            ("RequestLimitExceeded", Kind.THROTTLED),
            ("ExpiredToken", Kind.CREDENTIALS),
            ("AuthFailure", Kind.CREDENTIALS),
            ("InstanceLimitExceeded", Kind.QUOTA),
            ("InvalidAMIID.NotFound", Kind.SETTINGS),
            ("InternalError", Kind.BROKEN),
        ],
        2,
    ),
)
def test_failed_launch_is_not_retried_and_is_classified(place: Ec2Account, code: str, kind: Kind) -> None:
    place.proxy.next("CreateFleet", Fault(code))
    with pytest.raises(ProviderError) as raised:
        place.provider().provision(order())
    assert raised.value.kind == kind
    assert place.proxy.count("CreateFleet") == 1, "the SDK must not repeat launches"


@pytest.mark.heavy
def test_throttled_listing_is_retried_by_the_sdk(place: Ec2Account) -> None:
    place.proxy.next("DescribeInstances", Fault("RequestLimitExceeded"))
    assert place.provider().list_instances("small") == ()
    assert place.proxy.count("DescribeInstances") == 2


def test_missing_credentials_are_reported(place: Ec2Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ProviderError) as raised:
        place.provider().list_instances("small")
    assert raised.value.kind == Kind.CREDENTIALS


def test_launch_outcome_is_uncertain_without_a_response(place: Ec2Account) -> None:
    provider = place.provider()
    provider.clients.launch_client = Clients(REGION, "http://127.0.0.1:9").launch_client
    with pytest.raises(ProviderError) as failure:
        provider.provision(order())
    assert failure.value.kind == Kind.TIMEOUT


@pytest.mark.heavy
def test_lost_response_causes_no_duplicate_launch(place: Ec2Account) -> None:
    # If the tags are not visible yet, the client token prevents a duplicate launch.
    place.proxy.next("CreateFleet", Fault(after=True))
    with pytest.raises(ProviderError) as failure:
        place.provider().provision(order())
    assert failure.value.kind == Kind.TIMEOUT
    place.proxy.hidden |= place.proxy.living()
    again = place.provider().provision(order())
    assert place.proxy.count("CreateFleet") == 2
    assert {instance.instance_id for instance in again.instances} == place.proxy.living()
    assert {instance.state for instance in again.instances} == {InstanceState.BOOTING}
    place.proxy.hidden.clear()
    seen = place.provider().provision(order())
    assert place.proxy.count("CreateFleet") == 2
    assert [i.ordinal for i in seen.instances] == [i.ordinal for i in again.instances] == [0, 1]
    assert len(place.proxy.living()) == 2


@pytest.mark.heavy
def test_launch_request_is_completed_after_the_pool_settings_change(place: Ec2Account) -> None:
    place.proxy.next("CreateFleet", Fault(after=True))
    with pytest.raises(ProviderError):
        place.provider().provision(order())
    again = place.provider(volume_gib=100).provision(order())
    assert {instance.instance_id for instance in again.instances} == place.proxy.living()


@pytest.mark.heavy
def test_booting_and_interrupted_machines_are_reported(place: Ec2Account) -> None:
    place.proxy.boots_immediately = False
    provider = place.provider(purchase="spot")
    created = provider.provision(order()).instances
    assert {instance.state for instance in provider.list_instances("small")} == {InstanceState.BOOTING}
    place.proxy.boot()
    now = datetime.now(UTC).replace(microsecond=0)
    place.proxy.interrupt_spot_machine(created[1].instance_id, now)
    first, second = provider.list_instances("small")
    assert (first.state, first.interruption) == (InstanceState.READY, None)
    assert second.interruption is not None
    assert second.interruption.at == now + timedelta(minutes=2)


@pytest.mark.heavy
def test_interruptions_are_queried_only_for_spot_machines(place: Ec2Account) -> None:
    provider = place.provider()
    provider.provision(order())
    provider.list_instances("small")
    assert place.proxy.count("DescribeSpotInstanceRequests") == 0


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (Shape(4000, 8192, gpus=8), f"{TWO_GPUS} has 2 GPUs, but a node of the pool needs 8"),
        (Shape(1_000_000, 8192, gpus=2), f"{TWO_GPUS} has 48 CPU cores, but a node of the pool needs 1000"),
        (Shape(4000, 10_000_000, gpus=2), f"{TWO_GPUS} has"),
    ],
)
def test_mismatched_instance_type_is_never_launched(place: Ec2Account, shape: Shape, expected: str) -> None:
    with pytest.raises(ProviderError) as raised:
        place.provider().provision(order(shape=shape))
    assert raised.value.kind == Kind.SETTINGS
    assert raised.value.message.startswith(expected)
    assert place.proxy.count("CreateFleet") == 0


MANY_INSTANCES = [f"g6.{n}xlarge" for n in range(9)]
VALID_SETTINGS: dict[str, Any] = {
    "region": "eu-central-1", "instance_types": ["g6.xlarge"], "subnets": ["subnet-0abc"],
    "image": "ami-0abc",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"region": "moon"}, "provider_settings.region"),
        ({"region": None}, "provider_settings.region"),
        ({"instance_types": []}, "provider_settings.instance_types"),
        ({"instance_types": ["big one"]}, "provider_settings.instance_types[0]"),
        ({"subnets": "subnet-1"}, "provider_settings.subnets"),
        ({"image": None}, "provider_settings.image"),
        ({"image_parameter": "/aws/ami"}, "provider_settings.image"),
        ({"purchase": "free"}, "provider_settings.purchase"),
        ({"volume_gib": 1}, "provider_settings.volume_gib"),
        ({"aws_secret_access_key": "x"}, "provider_settings.aws_secret_access_key"),
        ({"instance_types": MANY_INSTANCES, "subnets": ["subnet-1"] * 6}, "provider_settings.subnets"),
    ],
)
def test_error_names_the_invalid_setting(change: dict[str, Any], path: str) -> None:
    assert aws_settings(VALID_SETTINGS).region == "eu-central-1"
    with pytest.raises(Invalid) as raised:
        aws_settings(VALID_SETTINGS | change)
    assert [problem.path for problem in raised.value.problems] == [path]


def test_instance_type_missing_from_the_price_table_has_no_known_price() -> None:
    priced = VALID_SETTINGS | {"region": "us-east-1", "instance_types": ["g6.12xlarge", "g5.12xlarge"]}
    assert str(price_per_gpu_hour(aws_settings(priced))) == "1.4180"
    assert price_per_gpu_hour(aws_settings(priced | {"region": "eu-central-1"})) is None
    assert price_per_gpu_hour(aws_settings(priced | {"purchase": "spot"})) is None
    assert price_per_gpu_hour(aws_settings(priced | {"instance_types": ["x1.large"]})) is None


def test_error_codes_missing_from_the_table_are_classified_by_their_prefix() -> None:
    assert classify_error("SomethingNew") == Kind.BROKEN
    assert classify_error("InvalidParameterCombination") == Kind.SETTINGS
