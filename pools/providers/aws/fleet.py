"""Turn an order into an instant fleet request, and its answer into instance ids."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.errors import first_of
from pools.providers.aws.settings import AwsSettings, Purchase
from pools.providers.aws.tags import tag_list
from pools.providers.base import ProviderError, ProviderErrorKind

USER_DATA_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class Launched:
    """`refused` are (code, message) pairs: why fewer came than were asked for."""

    instance_ids: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """`token` names the order; each request of it has a token of its own made from that."""

    token: str
    templates: Mapping[Purchase, str]
    user_data: str
    tags: Mapping[str, str]


def launch(clients: Clients, settings: AwsSettings, order: Launch, count: int) -> Launched:
    """Spot or on demand; or spot, and on demand whatever spot has not."""
    if settings.purchase == "on_demand":
        return _request(clients, settings, order, count, "on-demand")
    got = _request(clients, settings, order, count, "spot")
    missing = count - len(got.instance_ids)
    if settings.purchase == "spot" or missing <= 0:
        return got
    try:
        rest = _request(clients, settings, order, missing, "on-demand")
    except ProviderError as error:
        if not got.instance_ids:
            raise
        rest = Launched(refused=((str(error.kind), error.message),))
    return Launched(got.instance_ids + rest.instance_ids, got.refused + rest.refused)


def none_came(launched: Launched) -> ProviderError:
    """EC2 has answered, so nothing is uncertain: under the same token it would say the same for ever."""
    kind, message = first_of(launched.refused)
    if kind is ProviderErrorKind.BROKEN:
        kind = ProviderErrorKind.CAPACITY
    return ProviderError(kind, message or "EC2 launched no instance and gave no reason")


def why(launched: Launched) -> str:
    return "; ".join(f"{code}: {message}" for code, message in sorted(set(launched.refused)))


def _request(
    clients: Clients, settings: AwsSettings, order: Launch, count: int, purchase: Purchase
) -> Launched:
    request = fleet_request(settings, order, count, purchase)
    answer = clients.launching.create_fleet(ClientToken=_client_token(order, request), **request)
    return Launched(
        tuple(instance_id for told in answer.get("Instances", ()) for instance_id in told["InstanceIds"]),
        tuple((told["ErrorCode"], told.get("ErrorMessage", "")) for told in answer.get("Errors", ())),
    )


def fleet_request(settings: AwsSettings, order: Launch, count: int, purchase: Purchase) -> dict[str, Any]:
    template: dict[str, Any] = {"LaunchTemplateId": order.templates[purchase], "Version": "$Latest"}
    if order.user_data:
        template["LaunchTemplateSpecificationUserData"] = _encoded(order.user_data)
    request: dict[str, Any] = {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {"LaunchTemplateSpecification": template, "Overrides": _overrides(settings, purchase)}
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


def _overrides(settings: AwsSettings, purchase: Purchase) -> list[dict[str, Any]]:
    """Every type in every subnet; the order in which types are named is the order of preference."""
    chosen: list[dict[str, Any]] = []
    for rank, machine_type in enumerate(settings.instance_types):
        for subnet in settings.subnets:
            override: dict[str, Any] = {"InstanceType": machine_type, "SubnetId": subnet}
            if purchase == "on-demand" and settings.on_demand_allocation == "prioritized":
                override["Priority"] = float(rank)
            if purchase == "spot" and settings.spot_price_max is not None:
                override["MaxPrice"] = f"{settings.spot_price_max:.4f}"
            chosen.append(override)
    return chosen


def _client_token(order: Launch, request: Mapping[str, Any]) -> str:
    """The same order with the same content has the same token. With other content it needs another one: EC2
    refuses a token that comes back with other parameters, and the order would be stuck for ever."""
    content = json.dumps(request, sort_keys=True).encode()
    return f"{order.token[:40]}-{hashlib.sha256(content).hexdigest()[:16]}"


def _encoded(user_data: str) -> str:
    raw = user_data.encode()
    if len(raw) > USER_DATA_MAX:
        message = f"the user data takes {len(raw)} bytes, EC2 allows {USER_DATA_MAX}"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return base64.b64encode(raw).decode()
