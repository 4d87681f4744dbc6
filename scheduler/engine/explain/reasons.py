"""Why a workload is pending, in tokens, numbers and sentences."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from berth.core.amounts import MILLI
from berth.core.words import amount, counted
from scheduler.engine.plan import Blocker, Numbers, Reason

_RANK = {reason: rank for rank, reason in enumerate(Reason)}


# The workload is unschedulable: it cannot start until the pool's maximum size or its nodes change.
NEVER = frozenset({
    Reason.NO_MATCHING_NODE, Reason.EXCEEDS_NODE_SHAPE, Reason.EXCEEDS_POOL_MAX, Reason.EXCEEDS_DOMAIN,
})  # fmt: skip


def dominance(reason: Reason) -> int:
    """0 leads all others."""
    return _RANK[reason]


SENTENCES: Mapping[Reason, str] = {
    Reason.MISCONFIGURED: "It can never run as it is: {why}.",
    Reason.SUSPENDED: "It was suspended by a person.",
    Reason.DEPENDENCY_NOT_MET: "It waits for {waits_for} to complete{there}.",
    Reason.NO_MATCHING_NODE: "No node of the pool matches role {role}: {obstacles}.",
    Reason.EXCEEDS_NODE_SHAPE: "One replica of role {role} requests {asked_of}; "
    "the largest node of the pool has {most_of}.",
    Reason.EXCEEDS_POOL_MAX: "It requests {asked_of}; "
    "the pool can hold at most {most_of}, at its maximum size and empty.",
    Reason.EXCEEDS_DOMAIN: "It must run inside one {level} and requests {asked_of}; "
    "the largest {level} can hold at most {most_of}, empty.",
    Reason.NODES_UNAVAILABLE: "No node of the pool accepts role {role} now: {obstacles}.",
    Reason.PROJECT_LIMIT: "{queue} may hold {bound_of}: it holds {allocated}, {asked} asked.",
    Reason.DEPARTMENT_LIMIT: "Department {queue} may hold {bound_of}: it holds {allocated}, {asked} asked.",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "Non-preemptible work must fit within the quota of {queue}: "
    "{bound_of}, {allocated} held, {asked} asked.",
    Reason.DEPARTMENT_OVERSOLD: "Non-preemptible work must fit within the quota of department {queue} too: "
    "{bound_of}, {allocated} held, {asked} asked.",
    Reason.OVER_FAIR_SHARE: "{queue} would stand beyond quota and fair share ({share_of}): "
    "{allocated} held, {asked} asked; it may only use what is free.",
    Reason.WAITING_FOR_CAPACITY: "{asked_of} requested, {free} free, {missing} missing{also}.",
    Reason.FRAGMENTED: "Enough is free, but {cut}: {asked_of} requested, {free} free{there}, "
    "the biggest free block of a node is {biggest_block}.",
    Reason.TOPOLOGY: "It would fit, but not inside one {level}.",
    Reason.WAITING_FOR_GANG: "{missing} of its replicas {are} missing.",
    Reason.WAITING_FOR_VICTIMS: "It is reserved; the pods on its place have not stopped yet.",
    Reason.WAITING_FOR_SCALE_UP: "{scale_up}.",
    Reason.IN_PREEMPTION_DELAY: "It may make others give way in {seconds} s.",
    Reason.BACKOFF: "{backoff}.",
    Reason.BEHIND_RESERVATION: "The free nodes are kept for {behind}, which has waited longer.",
    Reason.NOTHING_TO_TAKE: "Fairness lets {takeable_of} be taken{short}.",
    Reason.VICTIMS_PROTECTED: "Fairness would let {protected_of} be taken, but {why}.",
    Reason.OUT_OF_TRIALS: "No arrangement was found in {trials_counted}.",
}


def is_schedulable(blockers: Sequence[Blocker]) -> bool:
    """Whether waiting can help: of an unschedulable workload the first blocker says why not."""
    return blockers[0].reason not in NEVER


def nearest(numbers: Numbers) -> tuple[float, float]:
    """Sort key for the answers of several policies: the greatest misses the smallest part of its resource."""
    missing, requested, takeable = (float(numbers.get(key) or 0) for key in ("missing", "asked", "takeable"))
    return -missing / max(1, requested), takeable


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
        yield "cut", _cut(numbers)
        yield "there", " on those nodes" if numbers.get("beside") else ""
    if reason is Reason.WAITING_FOR_CAPACITY:
        yield "also", f"; {numbers['also']} missing too" if numbers.get("also") else ""
    if reason is Reason.WAITING_FOR_SCALE_UP:
        yield "scale_up", _scale_up(numbers)
    if reason is Reason.BACKOFF:
        yield "backoff", _backoff(numbers)


def _cut(numbers: Numbers) -> str:
    most = numbers.get("spread_per_node")
    if isinstance(most, int):
        return f"no more than {counted(most, 'of its replicas', 'of its replicas')} may share a node"
    if numbers.get("beside"):
        return f"not on nodes that also have its {numbers['beside']} free"
    return "not in one piece"


def _scale_up(numbers: Numbers) -> str:
    nodes = numbers.get("nodes")
    count = nodes if isinstance(nodes, int) else 0
    if numbers.get("booting"):
        return f"It is reserved on {counted(count, 'node')} that {'is' if count == 1 else 'are'} booting"
    return f"{counted(count, 'more node')} would serve it; the pool can grow"


def _backoff(numbers: Numbers) -> str:
    if "seconds" not in numbers:
        return f"It cannot start yet: {numbers.get('why')}"
    counts = (("preemptions", "eviction"), ("restarts", "failed run"))
    causes = [
        counted(count, noun) for key, noun in counts if isinstance(count := numbers.get(key), int) and count
    ]
    after = f", after {' and '.join(causes)}" if causes else ""
    return f"It may start again in {numbers['seconds']} s{after}"


_PHRASES: Mapping[str, tuple[str, Callable[[int], str]]] = {
    "trials_counted": ("trials", lambda count: counted(count, "trial")),
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
