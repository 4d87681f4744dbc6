"""Describe in a few words how the parts of a queue key determine a workload's position."""

from collections.abc import Sequence
from itertools import takewhile

from scheduler.engine.board.ledger import OVER_QUOTA, OVER_SHARE, WITHIN_QUOTA

OWNER_END = ": "
WORKLOAD_START = "priority "  # the sentences about the workload follow those about its queues


def order_by_queue(ordering: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each queue's name and the sentences of its key, from the department to the project.

    The name is empty for sentences that name no queue. The sentences about the workload itself are left out.
    """
    queues: list[tuple[str, list[str]]] = []
    for sentence in takewhile(lambda each: not each.startswith(WORKLOAD_START), ordering):
        owner, sign, standing = sentence.partition(OWNER_END)
        if sign and standing in (OVER_QUOTA, WITHIN_QUOTA):
            queues.append((owner, [standing]))
        elif queues:
            queues[-1][1].append(sentence)
        else:
            queues.append(("", [sentence]))
    return queues


def order_in_words(ordering: Sequence[str]) -> str:
    """Return the state of a workload's queues, such as "exceeds quota" or "research exceeds quota".

    The amounts include the workload, so a queue that borrows nothing yet may exceed its quota with it.

    `ordering` are the sentences of the stored queue key, from the department to the project. A queue is named
    if the others stand differently. The result is empty if the sentences name no queue.
    """
    standings: dict[str, str] = {}
    name = ""
    for sentence in ordering:
        owner, sign, standing = sentence.partition(OWNER_END)
        if sign and standing in (OVER_QUOTA, WITHIN_QUOTA):
            name = owner
            standings[name] = "exceeds quota" if standing == OVER_QUOTA else "within quota"
        elif sentence == OVER_SHARE and standings.get(name) == "within quota":
            standings[name] = "exceeds fair share"  # quota comes first in the key
    if len(set(standings.values())) <= 1:
        return next(iter(standings.values()), "")
    return ", ".join(f"{owner} {text}" for owner, text in standings.items() if text != "within quota")
