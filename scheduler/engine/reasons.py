"""Here we say why a workload waits, in tokens, numbers and sentences."""

from collections.abc import Callable, Iterator, Mapping

from berth.core.amounts import MILLI
from berth.core.words import amount, counted, times
from scheduler.engine.plan import Blocker, Numbers, Reason

_RANK = {reason: rank for rank, reason in enumerate(Reason)}


# Nothing that could be freed would help these.
NEVER = frozenset({Reason.NO_MATCHING_NODE, Reason.EXCEEDS_NODE_SHAPE, Reason.EXCEEDS_POOL_MAX})


def dominance(reason: Reason) -> int:
    """0 leads all others."""
    return _RANK[reason]


SENTENCES: Mapping[Reason, str] = {
    Reason.MISCONFIGURED: "It can never run as it is: {why}.",
    Reason.SUSPENDED: "It was suspended by a person.",
    Reason.DEPENDENCY_NOT_MET: "It waits for {waits_for} to complete{there}.",
    Reason.NO_MATCHING_NODE: "No node of the pool matches role {role}: none of {nodes_counted}.",
    Reason.EXCEEDS_NODE_SHAPE: "No node could hold one replica of {role}, even empty: "
    "{asked_of} asked, the most is {most}.",
    Reason.EXCEEDS_POOL_MAX: "It asks for {asked_of}; the pool can never hold more than {most}.",
    Reason.PROJECT_LIMIT: "{queue} may hold {bound_of}: it holds {allocated}, {asked} asked.",
    Reason.DEPARTMENT_LIMIT: "Department {queue} may hold {bound_of}: it holds {allocated}, {asked} asked.",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "Non-preemptible work must fit within the quota of {queue}: "
    "{bound_of}, {allocated} held, {asked} asked.",
    Reason.DEPARTMENT_OVERSOLD: "Non-preemptible work must fit within the quota of department {queue} too: "
    "{bound_of}, {allocated} held, {asked} asked.",
    Reason.OVER_FAIR_SHARE: "{queue} would stand beyond quota and fair share ({share_of}): "
    "{allocated} held, {asked} asked; it may only use what is free.",
    Reason.WAITING_FOR_CAPACITY: "{asked_of} asked, {free} free, {missing} missing.",
    Reason.FRAGMENTED: "Enough is free, but {cut}: {asked_of} asked, {free} free, "
    "the biggest free block of a node is {biggest_block}.",
    Reason.TOPOLOGY: "It would fit, but not inside one {level}.",
    Reason.WAITING_FOR_GANG: "{missing} of its replicas {are} missing.",
    Reason.WAITING_FOR_VICTIMS: "Its place is promised; what stands there has not stopped yet.",
    Reason.WAITING_FOR_SCALE_UP: "{nodes_more} would serve it; the pool can grow.",
    Reason.IN_PREEMPTION_DELAY: "It may make others give way in {seconds} s.",
    Reason.BACKOFF: "It was stopped {stopped_times} and may start again in {seconds} s.",
    Reason.BEHIND_RESERVATION: "The free nodes are kept for {behind}, which has waited longer.",
    Reason.NOTHING_TO_TAKE: "Fairness lets {takeable_of} be taken{short}.",
    Reason.VICTIMS_PROTECTED: "Fairness would let {protected_of} be taken, but {why}.",
    Reason.OUT_OF_TRIALS: "No arrangement was found in {trials_counted}.",
}


class _Spoken(dict[str, object]):
    def __missing__(self, key: str) -> object:
        return "?"


def blocker(reason: Reason, numbers: Numbers) -> Blocker:
    spoken = _Spoken({key: _speak(key, value, numbers) for key, value in numbers.items()})
    for key in _COUNTED:
        if key in numbers:
            spoken[f"{key}_of"] = _with_unit(key, numbers)
    spoken.update(_in_words(reason, numbers))
    return Blocker(reason, SENTENCES[reason].format_map(spoken), dict(numbers))


# Numbers that are amounts of the resource named beside them.
_COUNTED = ("asked", "allocated", "bound", "free", "missing", "share", "quota", "most", "takeable",
            "protected", "biggest_block")  # fmt: skip
AMOUNTS = frozenset({*_COUNTED, "by_runtime", "non_preemptible"})


def _speak(key: str, value: object, numbers: Numbers) -> object:
    """Milli-GPU as GPUs, milli-CPU as CPUs; everything else as it is."""
    if value is None:
        return "no bound" if key in ("bound", "quota") else "-"
    if key in _COUNTED and isinstance(value, int) and numbers.get("resource") in ("gpu", "cpu"):
        return f"{value / MILLI:g}"
    return value


def _with_unit(key: str, numbers: Numbers) -> str:
    """1 GPU, 2.5 CPUs, no GPU, 300 MiB of memory."""
    value = numbers[key]
    if value is not None and not isinstance(value, int):
        return str(value)
    return amount(str(numbers.get("resource", "gpu")), value)


def _in_words(reason: Reason, numbers: Numbers) -> Iterator[tuple[str, str]]:
    """What a sentence says otherwise of one than of many."""
    for name, (key, phrase) in _PHRASES.items():
        value = numbers.get(key)
        if isinstance(value, int):
            yield name, phrase(value)
    if reason is Reason.VICTIMS_PROTECTED:
        yield "why", _protection(numbers)
    if reason is Reason.NOTHING_TO_TAKE:
        missing = _speak("missing", numbers["missing"], numbers)
        yield "short", f"; {missing} missing" if numbers["missing"] else ", which makes no room for it"
    if reason is Reason.DEPENDENCY_NOT_MET:
        yield "there", f"; there is no workload {nobody} yet" if (nobody := numbers.get("not_there")) else ""
    if reason is Reason.FRAGMENTED:
        most = numbers.get("spread_per_node")
        replicas = counted(most, "of its replicas", "of its replicas") if isinstance(most, int) else ""
        yield "cut", f"no more than {replicas} may share a node" if replicas else "not in one piece"


_PHRASES: Mapping[str, tuple[str, Callable[[int], str]]] = {
    "trials_counted": ("trials", lambda count: counted(count, "trial")),
    "nodes_counted": ("nodes", lambda count: counted(count, "node")),
    "nodes_more": ("nodes", lambda count: counted(count, "more node")),
    "stopped_times": ("preemptions", times),
    "are": ("missing", lambda count: "is" if count == 1 else "are"),
}


def _protection(numbers: Numbers) -> str:
    waits = "has not run its minimum runtime" if numbers.get("by_runtime") else ""
    firm = "is not preemptible" if numbers.get("non_preemptible") else ""
    return "what holds it " + " or ".join(part for part in (waits, firm) if part)


class Speaker:
    """Says the same thing once, however many wait for the same reason."""

    def __init__(self) -> None:
        self._said: dict[tuple[Reason, int], tuple[Numbers, Blocker]] = {}

    def blockers(self, found: Mapping[Reason, Numbers]) -> tuple[Blocker, ...]:
        return tuple(self._say(reason, found[reason]) for reason in sorted(found, key=_RANK.__getitem__))

    def _say(self, reason: Reason, numbers: Numbers) -> Blocker:
        key = reason, id(numbers)
        if key not in self._said:
            self._said[key] = numbers, blocker(reason, numbers)  # keeps the numbers, and so their identity
        return self._said[key][1]


def blockers(found: Mapping[Reason, Numbers]) -> tuple[Blocker, ...]:
    return Speaker().blockers(found)
