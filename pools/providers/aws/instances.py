"""List our EC2 instances, page by page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.tags import NODE, ORDER, ORDINAL, filters, tag_list, tag_map
from pools.providers.base import UNNUMBERED, Instance, InstanceState, Interruption, ProvisionOrder

STATES = {
    "pending": InstanceState.BOOTING,
    "running": InstanceState.READY,
    "stopping": InstanceState.STOPPED,  # we never stop one: a person did; its volumes cost on
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.ENDING,
    "terminated": InstanceState.GONE,
}
GONE_FROM_LISTINGS = ("terminated",)
PAGE = 1000
IDS_AT_ONCE = 200  # so many values one filter takes

Told = Mapping[str, Any]


def described(clients: Clients, tags: Mapping[str, str], *, gone_too: bool = False) -> list[Told]:
    """Those that carry all of these tags."""
    states = [state for state in STATES if gone_too or state not in GONE_FROM_LISTINGS]
    wanted: list[Told] = [*filters(tags), {"Name": "instance-state-name", "Values": states}]
    return list(_pages(clients, wanted))


def _pages(clients: Clients, wanted: Sequence[Told]) -> Iterator[Told]:
    pages = clients.ec2.get_paginator("describe_instances").paginate(
        Filters=list(wanted), PaginationConfig={"PageSize": PAGE}
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def instance(
    told: Told, gpus: int, *, ordinal: int | None = None, interruption: Interruption | None = None
) -> Instance:
    tags = tag_map(told.get("Tags"))
    return Instance(
        instance_id=told["InstanceId"],
        ordinal=_number(tags.get(ORDINAL)) if ordinal is None else ordinal,
        state=STATES.get(told["State"]["Name"], InstanceState.BOOTING),
        client_token=tags.get(ORDER, ""),
        address=told.get("PrivateIpAddress", ""),
        devices=tuple(str(index) for index in range(gpus)),
        interruption=interruption,
        prepared=False,
    )


def is_spot(told: Told) -> bool:
    return told.get("InstanceLifecycle") == "spot"


def ordinal_of(told: Told) -> int:
    return _number(tag_map(told.get("Tags")).get(ORDINAL))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else UNNUMBERED


def ordinals(order: ProvisionOrder, ids: Sequence[str], told: Mapping[str, Told]) -> dict[str, int]:
    """Machines that have one keep it; the others take the next free ones, by id."""
    given = {instance_id: ordinal_of(told[instance_id]) for instance_id in ids if instance_id in told}
    numbered = {instance_id: number for instance_id, number in given.items() if number != UNNUMBERED}
    taken, number = set(numbered.values()), order.start_ordinal
    for instance_id in sorted(set(ids) - numbered.keys()):
        while number in taken:
            number += 1
        numbered[instance_id] = number
        taken.add(number)
    return numbered


def write_down(clients: Clients, pool: str, numbered: Mapping[str, int], told: Mapping[str, Told]) -> None:
    for instance_id, ordinal in sorted(numbered.items(), key=lambda pair: pair[1]):
        if instance_id not in told or ordinal_of(told[instance_id]) == UNNUMBERED:
            name = f"{pool}-{ordinal}"
            tags = {ORDINAL: str(ordinal), NODE: name, "Name": name}
            clients.ec2.create_tags(Resources=[instance_id], Tags=tag_list(tags))


def in_order(numbered: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return sorted(numbered.items(), key=lambda pair: (pair[1], pair[0]))
