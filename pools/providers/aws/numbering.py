"""Assign each instance of an order its ordinal and tag."""

from collections.abc import Iterable, Mapping, Sequence

from pools.providers.aws.clients import Clients
from pools.providers.aws.instances import Told, ordinal_of
from pools.providers.aws.tags import NODE, ORDINAL, tag_list
from pools.providers.base import UNNUMBERED, ProvisionOrder


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
