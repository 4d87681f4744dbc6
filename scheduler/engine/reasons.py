"""Here we say why a workload waits, in tokens, numbers and sentences."""

from collections.abc import Callable, Iterator, Mapping

from berth.core.amounts import MILLI, RESOURCES
from berth.core.words import amount, counted, times
from scheduler.engine.board import Board, Numbers
from scheduler.engine.fresh import could_add, fresh_nodes, holds_one, may_stand_on, most_capacity
from scheduler.engine.gang import Gang, Part, Want, Way, amounts_of, ways
from scheduler.engine.ledger import KINDS
from scheduler.engine.placement import find_room
from scheduler.engine.plan import Blocker, Reason
from scheduler.engine.spots import Horizon

_RANK = {reason: rank for rank, reason in enumerate(Reason)}


# Nothing that could be freed would help these.
NEVER = frozenset({Reason.NO_MATCHING_NODE, Reason.EXCEEDS_NODE_SHAPE, Reason.EXCEEDS_POOL_MAX})


def dominance(reason: Reason) -> int:
    """0 leads all others."""
    return _RANK[reason]


SENTENCES: Mapping[Reason, str] = {
    Reason.MISCONFIGURED: "It can never run as it is: {why}.",
    Reason.SUSPENDED: "It was suspended by a person.",
    Reason.DEPENDENCY_NOT_MET: "It waits for {waits_for} to complete.",
    Reason.NO_MATCHING_NODE: "No node of the pool matches role {role}: none of {nodes_counted}.",
    Reason.EXCEEDS_NODE_SHAPE: "No node could hold one replica of {role}, even empty.",
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
    Reason.FRAGMENTED: "Enough is free, but not in one piece: {asked_of} asked, {free} free, "
    "the biggest free block of a node is {biggest_block}.",
    Reason.TOPOLOGY: "It would fit, but not inside one {level}.",
    Reason.WAITING_FOR_GANG: "{missing} of its replicas {are} missing.",
    Reason.WAITING_FOR_VICTIMS: "Its place is promised; what stands there has not stopped yet.",
    Reason.WAITING_FOR_SCALE_UP: "{nodes_more} would serve it; the pool can grow.",
    Reason.IN_PREEMPTION_DELAY: "It may make others give way in {seconds} s.",
    Reason.BACKOFF: "It was stopped {stopped_times} and may start again in {seconds} s.",
    Reason.BEHIND_RESERVATION: "The free nodes are kept for {behind}, which has waited longer.",
    Reason.NOTHING_TO_TAKE: "Fairness lets {takeable_of} be taken; {missing} missing.",
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


_COUNTED = ("asked", "allocated", "bound", "free", "missing", "share", "quota", "most", "takeable",
            "protected", "biggest_block")  # fmt: skip


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


def why_no_room(board: Board, gang: Gang) -> tuple[Reason, Numbers]:
    """What is short, as things stand: nodes of the kind, capacity, or capacity in one piece."""
    way = next(ways(gang))
    for want in way:
        never = _never(board, want.part)
        if never is not None:
            return never
    asked = amounts_of(way)
    too_much = _beyond_the_pool(board, asked)
    if too_much is not None:
        return too_much
    masks = [want.part.mask for want in way]
    usable = [
        i
        for i, ready in enumerate(board.nodes.ready)
        if ready and any(mask is None or mask[i] for mask in masks)
    ]
    free = _free(board, usable)
    biggest = max((board.nodes.whole[i] for i in usable), default=0) * MILLI
    for kind in KINDS:
        if asked[kind] > free[kind]:
            return Reason.WAITING_FOR_CAPACITY, {
                "resource": RESOURCES[kind],
                "asked": asked[kind],
                "free": free[kind],
                "missing": asked[kind] - free[kind],
                "biggest_block": biggest,
            }
    if any(want.scopes for want in way) and _fits_anywhere(board, gang, way):
        levels = [
            scope.constraint.required for want in way for scope in want.scopes if scope.constraint.required
        ]
        return Reason.TOPOLOGY, {"level": levels[0] if levels else None, "asked": asked[0], "free": free[0]}
    main = next((kind for kind in KINDS if asked[kind] > 0), 0)
    return Reason.FRAGMENTED, {
        "resource": RESOURCES[main],
        "asked": asked[main],
        "free": free[main],
        "biggest_block": biggest,
        "missing": 0,
    }


def _never(board: Board, part: Part) -> tuple[Reason, Numbers] | None:
    """Whether no node, not even an empty one, could ever hold a replica."""
    nodes = board.nodes
    kinds = [node for i, node in enumerate(nodes.nodes) if part.mask is None or part.mask[i]]
    if could_add(board):
        kinds += [node for node in fresh_nodes(board, 1) if may_stand_on(part, node)]
    if not kinds:
        return Reason.NO_MATCHING_NODE, {"role": part.role.name, "nodes": len(nodes.nodes)}
    if any(holds_one(part, node) for node in kinds):
        return None
    return Reason.EXCEEDS_NODE_SHAPE, {
        "role": part.role.name,
        "asked": part.amounts[0],
        "resource": "gpu",
        "most": max(node.gpus for node in kinds) * MILLI,
    }


def _beyond_the_pool(board: Board, asked: tuple[int, int, int]) -> tuple[Reason, Numbers] | None:
    most = most_capacity(board)
    for kind in KINDS:
        if asked[kind] > most[kind]:
            return Reason.EXCEEDS_POOL_MAX, {
                "resource": RESOURCES[kind],
                "asked": asked[kind],
                "most": most[kind],
                "missing": asked[kind] - most[kind],
            }
    return None


def _free(board: Board, usable: list[int]) -> tuple[int, int, int]:
    nodes = board.nodes
    return (
        sum(nodes.gpu[i] for i in usable),
        sum(max(0, nodes.cpu[i]) for i in usable),
        sum(max(0, nodes.memory[i]) for i in usable),
    )


def _fits_anywhere(board: Board, gang: Gang, way: Way) -> bool:
    start = board.mark()
    fits = find_room(board, gang, tuple(Want(want.part, want.count) for want in way), Horizon.LEAVING)
    board.rewind(start)
    return fits
