"""List our EC2 instances, page by page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.tags import ORDER, ORDINAL, filters, tag_map
from pools.providers.base import UNNUMBERED, Instance, InstanceState, Notice

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


def instance(told: Told, gpus: int, *, ordinal: int | None = None, notice: Notice | None = None) -> Instance:
    tags = tag_map(told.get("Tags"))
    return Instance(
        instance_id=told["InstanceId"],
        ordinal=_number(tags.get(ORDINAL)) if ordinal is None else ordinal,
        state=STATES.get(told["State"]["Name"], InstanceState.BOOTING),
        client_token=tags.get(ORDER, ""),
        address=told.get("PrivateIpAddress", ""),
        devices=tuple(str(index) for index in range(gpus)),
        notice=notice,
        prepared=False,
    )


def is_spot(told: Told) -> bool:
    return told.get("InstanceLifecycle") == "spot"


def ordinal_of(told: Told) -> int:
    return _number(tag_map(told.get("Tags")).get(ORDINAL))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else UNNUMBERED
