"""List this installation's EC2 instances, and assign ordinals to them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.tags import NODE, ORDER, ORDINAL, tag_filters, tag_list, tag_map
from pools.providers.base import UNNUMBERED, Instance, InstanceState, Interruption, LaunchRequest

STATES = {
    "pending": InstanceState.BOOTING,
    "running": InstanceState.READY,
    "stopping": InstanceState.STOPPED,  # stopped by a user, but its volumes still incur costs
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.ENDING,
    "terminated": InstanceState.GONE,
}
UNLISTED_STATES = ("terminated",)
PAGE = 1000

Description = Mapping[str, Any]


def describe_instances(
    clients: Clients, tags: Mapping[str, str], *, include_terminated: bool = False
) -> list[Description]:
    """Return the instances that have all of the tags."""
    states = [state for state in STATES if include_terminated or state not in UNLISTED_STATES]
    query_filters: list[Description] = [*tag_filters(tags), {"Name": "instance-state-name", "Values": states}]
    return list(_described_instances(clients, query_filters))


def _described_instances(clients: Clients, query_filters: Sequence[Description]) -> Iterator[Description]:
    pages = clients.ec2.get_paginator("describe_instances").paginate(
        Filters=list(query_filters), PaginationConfig={"PageSize": PAGE}
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def to_instance(
    description: Description,
    gpus: int,
    *,
    ordinal: int | None = None,
    interruption: Interruption | None = None,
) -> Instance:
    tags = tag_map(description.get("Tags"))
    return Instance(
        instance_id=description["InstanceId"],
        ordinal=_parse_ordinal(tags.get(ORDINAL)) if ordinal is None else ordinal,
        state=STATES.get(description["State"]["Name"], InstanceState.BOOTING),
        client_token=tags.get(ORDER, ""),
        address=description.get("PrivateIpAddress", ""),
        devices=tuple(str(index) for index in range(gpus)),
        interruption=interruption,
        prepared=False,
        message=interruption.reason if interruption is not None else "",
    )


def is_spot(description: Description) -> bool:
    return description.get("InstanceLifecycle") == "spot"


def tagged_ordinal(description: Description) -> int:
    return _parse_ordinal(tag_map(description.get("Tags")).get(ORDINAL))


def _parse_ordinal(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else UNNUMBERED


def assign_ordinals(
    order: LaunchRequest, ids: Sequence[str], descriptions: Mapping[str, Description]
) -> dict[str, int]:
    """Return each instance's ordinal, keyed by instance ID. Tagged instances keep their ordinals, and others
    get free ones.
    """
    tagged = {
        instance_id: tagged_ordinal(descriptions[instance_id])
        for instance_id in ids
        if instance_id in descriptions
    }
    ordinal_by_id = {instance_id: number for instance_id, number in tagged.items() if number != UNNUMBERED}
    used, number = set(ordinal_by_id.values()), order.start_ordinal
    for instance_id in sorted(set(ids) - ordinal_by_id.keys()):
        while number in used:
            number += 1
        ordinal_by_id[instance_id] = number
        used.add(number)
    return ordinal_by_id


def tag_ordinals(
    clients: Clients, pool: str, ordinal_by_id: Mapping[str, int], descriptions: Mapping[str, Description]
) -> None:
    for instance_id, ordinal in sorted(ordinal_by_id.items(), key=lambda pair: pair[1]):
        if instance_id not in descriptions or tagged_ordinal(descriptions[instance_id]) == UNNUMBERED:
            name = f"{pool}-{ordinal}"
            tags = {ORDINAL: str(ordinal), NODE: name, "Name": name}
            clients.ec2.create_tags(Resources=[instance_id], Tags=tag_list(tags))


def sorted_by_ordinal(ordinal_by_id: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return sorted(ordinal_by_id.items(), key=lambda pair: (pair[1], pair[0]))
