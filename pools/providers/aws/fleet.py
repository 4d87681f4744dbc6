"""Launch instances with EC2 fleet requests of type `instant`."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.errors import summarize_errors
from pools.providers.aws.settings import AwsSettings, Purchase
from pools.providers.aws.tags import tag_list
from pools.providers.base import ProviderError, ProviderErrorKind

USER_DATA_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """Launched instances. `failures` contains (code, message) pairs that explain why instances are
    missing.
    """

    instance_ids: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FleetLaunch:
    """Instances to launch. The client token of each fleet request is derived from `token`."""

    token: str
    templates: Mapping[Purchase, str]
    user_data: str
    tags: Mapping[str, str]


def launch(clients: Clients, settings: AwsSettings, order: FleetLaunch, count: int) -> LaunchResult:
    """Launch on-demand or spot instances.

    If the settings allow it, on-demand instances replace spot instances that EC2 did not launch.
    """
    if settings.purchase == "on_demand":
        return _send_request(clients, settings, order, count, "on-demand")
    spot_result = _send_request(clients, settings, order, count, "spot")
    missing = count - len(spot_result.instance_ids)
    if settings.purchase == "spot" or missing <= 0:
        return spot_result
    try:
        on_demand_result = _send_request(clients, settings, order, missing, "on-demand")
    except ProviderError as error:
        if not spot_result.instance_ids:
            raise
        on_demand_result = LaunchResult(failures=((str(error.kind), error.message),))
    return LaunchResult(
        spot_result.instance_ids + on_demand_result.instance_ids,
        spot_result.failures + on_demand_result.failures,
    )


def no_instances_error(result: LaunchResult) -> ProviderError:
    """Return the error for a launch that created no instances.

    A retry needs a new token, because EC2 would repeat its response to the old one.
    """
    kind, message = summarize_errors(result.failures)
    if kind is ProviderErrorKind.BROKEN:
        kind = ProviderErrorKind.CAPACITY
    return ProviderError(kind, message or "EC2 launched no instance and gave no reason")


def shortfall_reason(result: LaunchResult) -> str:
    return "; ".join(f"{code}: {message}" for code, message in sorted(set(result.failures)))


def _send_request(
    clients: Clients, settings: AwsSettings, order: FleetLaunch, count: int, purchase: Purchase
) -> LaunchResult:
    request = fleet_request(settings, order, count, purchase)
    response = clients.launch_client.create_fleet(ClientToken=_client_token(order, request), **request)
    return LaunchResult(
        tuple(instance_id for entry in response.get("Instances", ()) for instance_id in entry["InstanceIds"]),
        tuple((entry["ErrorCode"], entry.get("ErrorMessage", "")) for entry in response.get("Errors", ())),
    )


def fleet_request(
    settings: AwsSettings, order: FleetLaunch, count: int, purchase: Purchase
) -> dict[str, Any]:
    template: dict[str, Any] = {"LaunchTemplateId": order.templates[purchase], "Version": "$Latest"}
    if order.user_data:
        template["LaunchTemplateSpecificationUserData"] = _encode_user_data(order.user_data)
    request: dict[str, Any] = {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {"LaunchTemplateSpecification": template, "Overrides": _fleet_overrides(settings, purchase)}
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": purchase,
        },
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(order.tags)} for kind in ("fleet", "instance")
        ],
    }
    if purchase == "spot":
        request["SpotOptions"] = {
            "AllocationStrategy": settings.spot_allocation,
            "InstanceInterruptionBehavior": "terminate",
        }
    else:
        request["OnDemandOptions"] = {"AllocationStrategy": settings.on_demand_allocation}
    return request


def _fleet_overrides(settings: AwsSettings, purchase: Purchase) -> list[dict[str, Any]]:
    """Return a fleet override for each combination of instance type and subnet, preferred types first."""
    overrides: list[dict[str, Any]] = []
    for rank, machine_type in enumerate(settings.instance_types):
        for subnet in settings.subnets:
            override: dict[str, Any] = {"InstanceType": machine_type, "SubnetId": subnet}
            if purchase == "on-demand" and settings.on_demand_allocation == "prioritized":
                override["Priority"] = float(rank)
            if purchase == "spot" and settings.spot_price_max is not None:
                override["MaxPrice"] = f"{settings.spot_price_max:.4f}"
            overrides.append(override)
    return overrides


def _client_token(order: FleetLaunch, request: Mapping[str, Any]) -> str:
    """Return a token that identifies the fleet request and its content.

    EC2 rejects a token that is reused with other parameters.
    """
    content = json.dumps(request, sort_keys=True).encode()
    return f"{order.token[:40]}-{hashlib.sha256(content).hexdigest()[:16]}"


def _encode_user_data(user_data: str) -> str:
    raw = user_data.encode()
    if len(raw) > USER_DATA_MAX:
        message = f"the user data has {len(raw)} bytes; EC2 allows {USER_DATA_MAX}"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return base64.b64encode(raw).decode()
