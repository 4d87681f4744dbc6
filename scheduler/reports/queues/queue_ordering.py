"""Short descriptions of a workload's queue position, based on the parts of its queue key."""

from collections.abc import Sequence
from itertools import takewhile

from berth.core.wording.words import join_words
from scheduler.engine.board.ledger import OVER_QUOTA, OVER_SHARE, WITHIN_QUOTA

OWNER_END = ": "
# Prefixes of the sentences about the workload. They follow the sentences about its queues.
WORKLOAD_START, SUBMITTED_START = "priority ", "submitted "
RANK_START, USAGE_START = "rank ", "decayed usage "
SHARE_START = "dominant share "
# Text that turns an order difference into a clause, by the first word of the difference.
VERBS = {"uses": "", "higher": "has a ", "lower": "has "}


def group_sentences_by_queue(ordering: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return (queue name, sentences) for each queue in a stored queue key, the department first.

    Sentences that name no queue are listed under an empty name.
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


def make_values_readable(sentences: Sequence[str]) -> list[str]:
    """Format the numbers in a sort key's sentences as percentages. A rank of 0 is omitted."""
    return [_make_value_readable(each) for each in sentences if each != f"{RANK_START}0"]


def _make_value_readable(sentence: str) -> str:
    if sentence.startswith(USAGE_START):
        number, _, rest = sentence.removeprefix(USAGE_START).partition(" ")
        return f"decayed usage at {float(number):.0%} {rest}"
    if sentence.startswith(SHARE_START):
        current, _, rest = sentence.removeprefix(SHARE_START).partition(", ")
        number, _, condition = rest.partition(" ")
        return f"at {float(current):.0%} of its fair share, {float(number):.0%} {condition}"
    return sentence


def describe_queue_states(ordering: Sequence[str]) -> str:
    """Describe the state of the workload's queues, such as "would exceed quota".

    `ordering` contains the sentences of the stored queue key. If these sentences name no queue, the result is
    empty.
    """
    standings = _queue_states(ordering)
    if len(set(standings.values())) <= 1:
        return next(iter(standings.values()), "")
    return ", ".join(f"{owner} {text}" for owner, text in standings.items() if text != "within quota")


def explain_queue_states(ordering: Sequence[str]) -> str:
    """Explain how the states of the workload's queues affect its queue position.

    If the sentences in `ordering` name no queue, the result is empty.
    """
    if is_not_ready(ordering):
        return "Sorted last: workloads that cannot start yet follow those that can."
    states = _queue_states(ordering)
    exceeding = [
        (name, text.removeprefix("would exceed ")) for name, text in states.items() if text != "within quota"
    ]
    if not exceeding:
        return "Sorted before workloads that would exceed a quota or fair share." if states else ""
    bounds = list(dict.fromkeys(bound for _, bound in exceeding))
    (first, first_bound), *others = exceeding
    if len(bounds) == 1:
        names = join_words([name for name, _ in exceeding])
        cause = f"{names} would exceed {'theirs' if others else 'its own'}"
    else:
        parts = [
            f"{first} would exceed its {first_bound}",
            *(f"{name} its {bound}" for name, bound in others),
        ]
        cause = join_words(parts)
    return f"Sorted after workloads within {join_words(bounds)}: {cause}."


def _queue_states(ordering: Sequence[str]) -> dict[str, str]:
    """Return the state of each queue, the department first, such as "would exceed quota"."""
    standings: dict[str, str] = {}
    name = ""
    for sentence in ordering:
        owner, sign, standing = sentence.partition(OWNER_END)
        if sign and standing in (OVER_QUOTA, WITHIN_QUOTA):
            name = owner
            standings[name] = "would exceed quota" if standing == OVER_QUOTA else "within quota"
        elif sentence == OVER_SHARE and standings.get(name) == "within quota":
            standings[name] = "would exceed fair share"  # the sort key compares quotas before fair shares
    return standings


def describe_order_difference(first: Sequence[str], second: Sequence[str]) -> str:
    """Return why one queue comes before another, such as "uses less of its fair share than vision", or "" for
    workloads of the same project. `first` and `second` are stored sort keys in queue order.
    """
    pair = _first_differing_queues(first, second)
    return _describe_first_difference(*pair) if pair else ""


def order_difference_clause(first: Sequence[str], second: Sequence[str]) -> str:
    """Return the text of `describe_order_difference` as a clause: "is within quota, unlike vision"."""
    text = describe_order_difference(first, second)
    word = text.partition(" ")[0]
    return f"{VERBS.get(word, 'is ')}{text}" if text else ""


def differing_queues(first: Sequence[str], second: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the two sibling queues that decide the workloads' order, or None."""
    pair = _first_differing_queues(first, second)
    return pair[:2] if pair else None


def is_not_ready(ordering: Sequence[str]) -> bool:
    """Return whether the workload is sorted last because it cannot start yet."""
    return next(iter(ordering), "").startswith(WORKLOAD_START)


def _first_differing_queues(
    first: Sequence[str], second: Sequence[str]
) -> tuple[str, str, Sequence[str], Sequence[str]] | None:
    """Return (name, other name, sentences, other sentences) for the first level at which the two keys name
    different queues, or None if there is no such level.
    """
    queues, other_queues = group_sentences_by_queue(first), group_sentences_by_queue(second)
    for (name, key), (other, other_key) in zip(queues, other_queues, strict=False):
        if name and other and name != other:
            return name, other, key, other_key
    return None


def _describe_first_difference(_: str, other: str, key: Sequence[str], other_key: Sequence[str]) -> str:
    if WITHIN_QUOTA in key and OVER_QUOTA in other_key:
        return f"within quota, unlike {other}"
    if _number_after_prefix(key, RANK_START) > _number_after_prefix(other_key, RANK_START):
        return f"higher rank than {other}"
    if _number_after_prefix(key, USAGE_START) < _number_after_prefix(other_key, USAGE_START):
        return f"lower recent usage than {other}"
    if OVER_SHARE in other_key and OVER_SHARE not in key:
        return f"within fair share, unlike {other}"
    if _share_including_workload(key) < _share_including_workload(other_key):
        return f"uses less of its fair share than {other}"
    return f"before {other} in fair-share order"


def _number_after_prefix(key: Sequence[str], start: str) -> float:
    """Return the number in the first sentence that starts with `start`, or 0 if there is no such sentence."""
    return next((float(each.removeprefix(start).split()[0]) for each in key if each.startswith(start)), 0)


def _share_including_workload(key: Sequence[str]) -> float:
    """Return the dominant share that the queue would have with its next workload, or 0 if it is unknown."""
    sentence = next((each for each in key if each.startswith(SHARE_START)), "")
    return float(sentence.rpartition(", ")[2].split()[0]) if sentence else 0
