"""Messages and figures for the reasons why a workload is pending."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone

from berth.core.values.amounts import MILLI
from berth.core.wording.blocker_numbers import AMOUNTS
from berth.core.wording.words import format_amount, format_count, format_mib, format_number
from scheduler.engine.plan import UNSCHEDULABLE_REASONS, Blocker, Numbers, Reason

_RANK = {reason: rank for rank, reason in enumerate(Reason)}


def reason_rank(reason: Reason) -> int:
    """Return the rank of a reason. The most dominant reason has rank 0."""
    return _RANK[reason]


MESSAGE_TEMPLATES: Mapping[Reason, str] = {
    Reason.MISCONFIGURED: "Cannot start as specified: {why}.",
    Reason.SUSPENDED: "Suspended by a user.",
    Reason.DEPENDENCY_NOT_MET: "Waiting for {awaited}.",
    Reason.FETCHING_CODE: "{code}",
    Reason.NO_MATCHING_NODE: "No node in the pool matches role {role}: {obstacles}.",
    Reason.EXCEEDS_NODE_SHAPE: "Each replica of role {role} requests {requested_of}; "
    "{largest_node} {most_of}{in_pool}.",
    Reason.EXCEEDS_POOL_MAX: "Requests {requested_of}, "
    "more than {largest_pool} provides at its maximum size ({most_of}).",
    Reason.EXCEEDS_DOMAIN: "Must run within one {level} and requests {requested_of}; "
    "the most suitable {level} provides {most_of} when empty.",
    Reason.NODES_UNAVAILABLE: "No node in the pool accepts role {role} now: {obstacles}.",
    Reason.PROJECT_LIMIT: "Project {queue} is limited to {bound_of}: {allocated} allocated, "
    "{requested} requested.",
    Reason.DEPARTMENT_LIMIT: "Department {queue} is limited to {bound_of}: {allocated} allocated, "
    "{requested} requested.",
    Reason.CLUSTER_QUOTA: "The cluster's quota `{cluster_quota}` in namespace `{namespace}` allows "
    "{allowance}, and this workload requests {request}.",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "Non-preemptible workloads must fit in the quota of {queue} "
    "({bound_of}): {allocated} allocated to them, {requested} requested{held_quota}.",
    Reason.DEPARTMENT_OVERSOLD: "Non-preemptible workloads must also fit in the quota of department {queue} "
    "({bound_of}): {allocated} allocated to them, {requested} requested.",
    Reason.WOULD_EXCEED_FAIR_SHARE: "With this workload, {queue} would have {total} allocated ({allocated} "
    "now), more than its fair share ({share}) and quota ({quota}). "
    "Only free capacity can be used{until_turn}.",
    Reason.WAITING_FOR_CAPACITY: "{shortage}{held}.",
    Reason.FRAGMENTED: "Enough is free, but {fragmentation}{consolidation}{held}.",
    Reason.TOPOLOGY: "Would fit, but not within one {level}{held}.",
    Reason.WAITING_FOR_GANG: "{replicas} missing.",
    Reason.WAITING_FOR_VICTIMS: "Capacity is reserved; waiting for the evicted pods to stop.",
    Reason.WAITING_FOR_SCALE_UP: "{scale_up}.",
    Reason.IN_PREEMPTION_DELAY: "Preemption is allowed from {time}.",
    Reason.BACKOFF: "{backoff}.",
    Reason.BEHIND_RESERVATION: "The free nodes are held for {behind}, which has waited longer.",
    Reason.NO_RECLAIMABLE_RESOURCES: "{reclaim}.",
    Reason.VICTIMS_PROTECTED: "{reclaim}; {holders} hold {more}{protected_of}.",
    Reason.PLACEMENT_ATTEMPTS_EXHAUSTED: "Gave up after {placement_attempts}.",
}


def is_schedulable(blockers: Sequence[Blocker]) -> bool:
    """Return whether the workload can start later without changes to the workload or the cluster."""
    return blockers[0].reason not in UNSCHEDULABLE_REASONS


class _ValuesWithDefault(dict[str, object]):
    def __missing__(self, key: str) -> object:
        return "?"


def blocker(reason: Reason, numbers: Numbers) -> Blocker:
    """Format one reason as a blocker with a message. The amounts in `numbers` are in engine units."""
    values = _ValuesWithDefault({key: convert_units(key, value, numbers) for key, value in numbers.items()})
    for key in AMOUNTS:
        if key in numbers:
            values[f"{key}_of"] = _amount_with_unit(key, numbers)
    values.update(_message_phrases(reason, numbers))
    if reason is Reason.CLUSTER_QUOTA:
        values.update(_cluster_quota_phrases(numbers))
    message = MESSAGE_TEMPLATES[reason].format_map(values)
    return Blocker(reason, f"{message}{_quota_group_sentence(numbers)}", dict(numbers))


def convert_units(key: str, value: object, numbers: Numbers) -> object:
    """Convert thousandths to GPUs or CPUs, MiB to text with a unit, and None to text. Return other values
    unchanged.
    """
    if value is None:
        return "unlimited" if key in ("bound", "quota") else "-"
    if key in AMOUNTS and isinstance(value, int):
        if numbers.get("resource") in ("gpu", "cpu"):
            return format_number(value / MILLI)
        if value and numbers.get("resource") in ("memory_mib", "gpu_memory_mib"):
            return format_mib(value)
    return value


def _amount_with_unit(key: str, numbers: Numbers) -> str:
    """Return an amount with its unit, such as "1 GPU", "2.5 CPUs", "no GPU" or "300 MiB of memory"."""
    value = numbers[key]
    if value is not None and not isinstance(value, int):
        return str(value)
    return format_amount(str(numbers.get("resource", "gpu")), value)


def _message_phrases(reason: Reason, numbers: Numbers) -> Iterator[tuple[str, str]]:
    """Yield (placeholder, phrase) for each phrase that combines several numbers or needs a plural form."""
    yield "held", _held_phrase(numbers)
    yield "time", _time_phrase(numbers)
    match reason:
        case Reason.VICTIMS_PROTECTED:
            yield "reclaim", _reclaim_phrase(numbers)
            yield "holders", _protected_workloads_phrase(numbers)
            yield "more", "another " if numbers.get("reclaimable") else ""
        case Reason.NO_RECLAIMABLE_RESOURCES:
            yield "reclaim", _reclaim_phrase(numbers)
        case Reason.NON_PREEMPTIBLE_OVER_QUOTA:
            yield "held_quota", _held_quota_phrase(numbers)
        case Reason.WOULD_EXCEED_FAIR_SHARE:
            turns = bool(numbers.get("takes_turns"))
            yield "until_turn", " until decayed usage makes it the queue's turn" if turns else ""
            total = _get_integer(numbers, "allocated") + _get_integer(numbers, "requested")
            yield "total", format_amount(str(numbers.get("resource", "gpu")), total)
        case Reason.EXCEEDS_NODE_SHAPE | Reason.EXCEEDS_POOL_MAX:
            yield from _size_phrases(numbers)
        case Reason.FRAGMENTED:
            yield "fragmentation", _fragmentation_phrase(numbers)
            yield "consolidation", _consolidation_phrase(numbers)
        case Reason.WAITING_FOR_CAPACITY:
            yield "shortage", _shortage_phrase(numbers)
        case Reason.WAITING_FOR_GANG:
            count = _get_integer(numbers, "missing")
            yield "replicas", f"{format_count(count, 'replica')} {'is' if count == 1 else 'are'}"
        case Reason.WAITING_FOR_SCALE_UP:
            yield "scale_up", _scale_up_phrase(numbers)
        case Reason.BACKOFF:
            yield "backoff", _backoff_phrase(numbers)
        case Reason.PLACEMENT_ATTEMPTS_EXHAUSTED:
            yield "placement_attempts", format_count(_get_integer(numbers, "attempts"), "placement attempt")


def _size_phrases(numbers: Numbers) -> Iterator[tuple[str, str]]:
    beside, is_largest = numbers.get("beside"), numbers.get("is_largest_pool")
    pool = f"pool {numbers['pool']}" if "pool" in numbers else "the pool"
    yield "largest_pool", f"{pool}, the largest of the allowed pools," if is_largest else pool
    yield "in_pool", f" ({pool})" if is_largest else ""
    if beside:
        in_pool = f" in {pool}" if "pool" in numbers else ""
        yield "largest_node", f"nodes{in_pool} with the required {beside} have at most"
    else:
        yield "largest_node", f"the largest node in {'the allowed pools' if is_largest else pool} has"


def _quota_group_sentence(numbers: Numbers) -> str:
    if "group" not in numbers:
        return ""
    allocated, quota = (
        convert_units("group_allocated", numbers["group_allocated"], numbers),
        numbers["group_quota"],
    )
    pools = f": {numbers['group_pools']}" if numbers["group_pools"] else ""
    if quota is None:
        amounts = _amount_with_unit("group_allocated", numbers)
    else:
        amounts = f"{allocated} of its {_amount_with_unit('group_quota', numbers).removeprefix('no ')}"
    return f" {numbers['queue']} has {amounts} allocated across {numbers['group']}{pools}."


def _cluster_quota_phrases(numbers: Numbers) -> Iterator[tuple[str, str]]:
    resource, name = numbers.get("resource"), str(numbers.get("cluster_resource"))
    bound, used, requested = (
        convert_units(key, numbers.get(key), numbers) for key in ("bound", "used", "requested")
    )
    allowed = f"{_amount_with_unit('bound', numbers)} ({name})"
    if resource == "gpu":
        allowed = f"{bound} {name.removeprefix('requests.')}"
    yield "allowance", f"{allowed}; {used} {'is' if str(used) == '1' else 'are'} used"
    yield "request", str(requested)


def _get_integer(numbers: Numbers, key: str) -> int:
    value = numbers.get(key)
    return value if isinstance(value, int) else 0


def _shortage_phrase(numbers: Numbers) -> str:
    free = convert_units("free", numbers.get("free"), numbers)
    if numbers.get("resource") == "pods":
        count = format_count(_get_integer(numbers, "requested"), "replica")
        return f"Nodes have reached their maximum number of pods: {count} requested, {free} placeable"
    if numbers.get("resource") == "replicas":
        return f"No matching node is ready for {format_count(_get_integer(numbers, 'requested'), 'replica')}"
    sentence = f"Needs {_amount_with_unit('requested', numbers)}, {free_phrase(numbers, 'free')} free"
    if numbers.get("leaving"):
        sentence += (
            f" (including {convert_units('leaving', numbers['leaving'], numbers)} once pods have stopped)"
        )
    if numbers.get("also"):
        sentence += f"; also missing: {numbers['also']}"
    if numbers.get("cordoned"):
        sentence += f"; {_amount_with_unit('cordoned', numbers)} free on cordoned or draining nodes"
    if numbers.get("reserved"):
        reserved = _amount_with_unit("reserved", numbers)
        sentence += f"; {reserved} free on nodes that cannot isolate pods and serve another project"
    if numbers.get("avoided"):
        sentence += f"; {_amount_with_unit('avoided', numbers)} free on nodes where the workload failed"
    return sentence


def free_phrase(numbers: Numbers, key: str) -> str:
    """Return an amount with the verb that follows it, such as "1.25 are", "1 is", "none are" or "4
    GiB is".
    """
    amount, requested = _get_integer(numbers, key), _get_integer(numbers, "requested")
    countable = numbers.get("resource", "gpu") in ("gpu", "cpu")
    verb = "are" if countable and (amount or requested) != MILLI else "is"
    return f"{convert_units(key, amount, numbers) if amount else 'none'} {verb}"


def _consolidation_phrase(numbers: Numbers) -> str:
    if numbers.get("consolidation") == "disabled":
        return "; consolidation is disabled in this pool"
    if "max_moves" in numbers:
        pods = format_count(_get_integer(numbers, "max_moves"), "pod")
        return f"; consolidation may move at most {pods} at a time"
    return ""


def _held_phrase(numbers: Numbers) -> str:
    count = _get_integer(numbers, "held_nodes")
    verb = "is" if count == 1 else "are"
    return f"; {format_count(count, 'node')} {verb} held for this workload" if count else ""


def _held_quota_phrase(numbers: Numbers) -> str:
    if "behind" not in numbers:
        return ""
    return f", {_amount_with_unit('held', numbers)} held for {numbers['behind']}, which has a higher priority"


def _reclaim_phrase(numbers: Numbers) -> str:
    action, missing = numbers.get("action", "reclaimed"), _get_integer(numbers, "missing")
    amount = _get_integer(numbers, "reclaimable")
    if not missing and not amount:
        return f"Nothing can be {action} that would make the workload fit"
    if not missing:
        verb = "Preempting" if action == "preempted" else "Reclaiming"
        return f"{verb} up to {_amount_with_unit('reclaimable', numbers)} would not make the workload fit"
    if not amount:
        resource = _amount_with_unit("reclaimable", numbers)
        return f"{resource[:1].upper()}{resource[1:]} can be {action}"
    total = format_amount(str(numbers["resource"]), missing + amount)
    return f"Only {convert_units('reclaimable', amount, numbers)} of the missing {total} can be {action}"


def _fragmentation_phrase(numbers: Numbers) -> str:
    free, block = (convert_units(key, numbers.get(key), numbers) for key in ("free", "biggest_block"))
    most = numbers.get("spread_per_node")
    if isinstance(most, int):
        count = format_count(_get_integer(numbers, "requested"), "replica")
        return f"at most {most} of the {count} may run on a node: {free} placeable"
    where = "fragmented"
    if numbers.get("beside") and not numbers.get("free"):
        return (
            f"on different nodes: {_amount_with_unit('requested', numbers)} requested, and the nodes that "
            f"have the required {numbers['beside']} free have none left"
        )
    if numbers.get("beside"):
        where = f"not on nodes that also have the required {numbers['beside']} free"
    on_those = " on those nodes" if numbers.get("beside") else ""
    return (
        f"{where}: {_amount_with_unit('requested', numbers)} requested, {free} free{on_those}, "
        f"at most {block} on one node"
    )


def _scale_up_phrase(numbers: Numbers) -> str:
    count = _get_integer(numbers, "nodes")
    if numbers.get("booting"):
        return f"Capacity is reserved on {format_count(count, 'booting node')}"
    return f"The pool adds {format_count(count, 'node')} for its pending workloads"


def _backoff_phrase(numbers: Numbers) -> str:
    if numbers.get("until") is None:
        return f"Cannot start yet: {numbers.get('why')}"
    if numbers.get("refusal"):
        return f"Restart delay until {_time_phrase(numbers)}, after {numbers['refusal']}"
    counts = (("preemptions", "eviction"), ("restarts", "failed run"))
    causes = [format_count(count, noun) for key, noun in counts if (count := _get_integer(numbers, key))]
    after = f", after {' and '.join(causes)}" if causes else ""
    return f"Restart delay until {_time_phrase(numbers)}{after}"


def _time_phrase(numbers: Numbers) -> str:
    """Format the `until` time of a reason in UTC. Return an empty string if the reason has none."""
    if numbers.get("until") is None:
        return ""
    return f"{datetime.fromtimestamp(_get_integer(numbers, 'until'), timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _protected_workloads_phrase(numbers: Numbers) -> str:
    runtime = "workloads within their minimum runtime" if numbers.get("by_runtime") else ""
    fixed = "non-preemptible workloads" if numbers.get("non_preemptible") else ""
    return " and ".join(part for part in (runtime, fixed) if part)


class BlockerFormatter:
    """Converter of pending reasons to blockers. Workloads with the same numbers share one blocker."""

    def __init__(self) -> None:
        self._formatted: dict[tuple[Reason, int], tuple[Numbers, Blocker]] = {}

    def blockers(self, reasons: Mapping[Reason, Numbers]) -> tuple[Blocker, ...]:
        """Return one blocker per reason, most important first."""
        return tuple(
            self._format_blocker(reason, reasons[reason]) for reason in sorted(reasons, key=reason_rank)
        )

    def _format_blocker(self, reason: Reason, numbers: Numbers) -> Blocker:
        key = reason, id(numbers)
        if key not in self._formatted:
            # Keep a reference to the numbers, so that their id() is not reused.
            self._formatted[key] = numbers, blocker(reason, numbers)
        return self._formatted[key][1]


def blockers(reasons: Mapping[Reason, Numbers]) -> tuple[Blocker, ...]:
    return BlockerFormatter().blockers(reasons)
