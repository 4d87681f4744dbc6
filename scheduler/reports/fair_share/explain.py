"""Explain a fair share in sentences."""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_amount, format_mib, format_number
from scheduler.engine.fair_share.trace import Division, Offer, QueueInput, Round

# Function that returns a queue's name, or a placeholder for a hidden queue.
DisplayName = Callable[[str], str]
SCALE_UP = "to scale up elastic workloads"


def explain_share(
    division: Division,
    queue: str,
    display_name: DisplayName = str,
    request_parts: Mapping[str, int] | None = None,
    *,
    name: str = "",
    kind: str = "queue",
) -> list[str]:
    """Return sentences that derive a queue's share step by step.

    `request_parts` maps descriptions to amounts in engine units. The sentences call the queue `name` and its
    siblings `kind`, such as "project".
    """
    mine = division.queue_input(queue)
    assert mine is not None, "the queue takes part in the division"
    explanation = _ShareExplanation(
        division, mine, display_name, request_parts or {}, name=name or display_name(queue), kind=kind
    )
    return list(explanation.explanation_lines())


def split_request(requested: int, allocated: int, reserved: int, pending: int | None) -> dict[str, int]:
    """Return the non-zero parts of a request by name.

    `pending` is the amount that pending workloads request, or None if it is unknown. If the parts do not add
    up, the result is empty.
    """
    rest = requested - allocated - reserved
    if rest < 0:
        return {}
    parts = {"allocated": allocated, "reserved": reserved}
    if pending is None or pending > rest:
        parts[f"pending or {SCALE_UP}"] = rest
    else:
        parts |= {"pending": pending, SCALE_UP: rest - pending}
    return {what: amount for what, amount in parts.items() if amount}


class _ShareExplanation:
    def __init__(
        self,
        division: Division,
        mine: QueueInput,
        display_name: DisplayName,
        request_parts: Mapping[str, int],
        *,
        name: str,
        kind: str,
    ) -> None:
        self.division, self.mine, self.display_name = division, mine, display_name
        self.request_parts, self.name, self.kind = request_parts, name, kind

    def explanation_lines(self) -> Iterator[str]:
        mine = self.mine
        yield self._explain_request()
        if mine.wanted > 0:
            yield from self._explain_quota()
            if mine.wanted > sum(
                self._own_offer_in_round(round_).granted for round_ in self._rounds_in_phase("quota")
            ):
                yield from self._explain_over_quota()
        yield f"Fair share: {self._format_amount(mine.share)}."

    def _format_amount(self, value: Fraction | int | None) -> str:
        """Format an amount, rounded down so that no sentence overstates it."""
        return format_amount(self.division.resource, value if value is None else int(value))

    def _explain_request(self) -> str:
        mine = self.mine
        request = self._describe_request(self._format_amount(mine.requested))
        if mine.wanted >= mine.requested:
            return f"{request}."
        allowed = self._format_amount(mine.wanted)
        if mine.limit is not None and mine.limit == mine.wanted:
            return f"{request}. {self.name}'s limit allows {allowed}."
        if not mine.over_quota and mine.quota == mine.wanted:
            return f"{request}. {self.name} may not borrow, so its quota of {allowed} applies."
        return f"{request}. The limits of {self.name} and its projects allow {allowed}."

    def _describe_request(self, total: str) -> str:
        """Return text such as "Total request: 25 GPUs (12 allocated + 13 pending)"."""
        parts = self.request_parts
        if not parts:
            return f"Total request (allocated and pending): {total}"
        if len(parts) == 1:
            return f"Total request: {total}, all {next(iter(parts))}"
        terms = (f"{self._format_bare_amount(amount)} {what}" for what, amount in parts.items())
        return f"Total request: {total} ({' + '.join(terms)})"

    def _format_bare_amount(self, amount: int) -> str:
        if self.division.resource == "memory_mib":
            return format_mib(amount)
        return format_number(amount / MILLI)

    def _explain_quota(self) -> Iterator[str]:
        mine, rounds = self.mine, self._rounds_in_phase("quota")
        if mine.quota == 0:
            yield (f"No quota is left in group {mine.group}." if mine.group else f"{self.name} has no quota.")
            return
        name = f"{self.name}'s {f'remaining quota in group {mine.group}' if mine.group else 'quota'}"
        quota = "unlimited" if mine.quota is None else self._format_amount(mine.quota)
        goal = mine.wanted if mine.quota is None else min(mine.quota, mine.wanted)
        granted = sum(self._own_offer_in_round(round_).granted for round_ in rounds)
        if granted == goal and mine.wanted <= goal:
            yield f"{name} is {quota} and covers the whole request."
        elif granted == goal:
            yield f"{name} is {quota} and fully available."
        elif not rounds:
            yield f"{name} is {quota}, but higher ranks leave nothing for rank {mine.rank}."
        else:
            oversold = self._describe_oversubscribed_quota()
            yield f"{name} is {quota}, but quotas of rank {mine.rank} are oversold: {oversold}."
            yield from self._explain_rounds(rounds, "quota")

    def _describe_oversubscribed_quota(self) -> str:
        peers = [queue for queue in self.division.inputs if queue.rank == self.mine.rank]
        in_quota = sum(
            queue.wanted if queue.quota is None else min(queue.quota, queue.wanted) for queue in peers
        )
        available = self._format_amount(self._rounds_in_phase("quota")[0].left)
        return f"{self._format_amount(in_quota)} requested within quota, {available} available"

    def _explain_over_quota(self) -> Iterator[str]:
        mine, rounds = self.mine, self._rounds_in_phase("over_quota")
        if rounds:
            yield from self._explain_rounds(rounds, "quota" if self.division.by_quota else "weight")
        elif mine.weight == 0 and self.division.by_quota:
            yield f"Weights are disabled, so a {self.kind} without a quota cannot borrow."
        elif mine.weight == 0:
            yield f"{self.name}'s weight is 0, so it gets nothing above its quota."
        else:
            has_higher_ranks = any(queue.rank > mine.rank for queue in self.division.inputs)
            yield f"Quotas{' and higher ranks' if has_higher_ranks else ''} leave nothing to borrow."

    def _explain_rounds(self, rounds: list[Round], by: str) -> Iterator[str]:
        for number, round_ in enumerate(rounds):
            if round_.phase == "remainder":
                yield self._explain_remainder(round_)
            else:
                yield self._explain_offer(round_, by, first=number == 0)

    def _explain_offer(self, round_: Round, by: str, *, first: bool) -> str:
        mine = self._own_offer_in_round(round_)
        left = f"{'Left' if first else 'Then left'} to divide by {by}{self._rank_suffix(round_)}"
        line = f"{left}: {self._format_amount(round_.left)}."
        if len(round_.offers) == 1:
            granted = self._format_amount(mine.granted)
            return f"{line} No other {self.kind} requests more, so {self.name} gets {granted}."
        portion = f"{self._format_percentage_with_adjustment(mine)} is {self._format_amount(mine.offered)}"
        line = f"{line} {self.name}'s portion of {portion}"
        if mine.granted == mine.needed:
            return f"{line}, but {self.name} needs only {self._format_amount(mine.granted)}."
        if any(offer.granted == offer.needed for offer in round_.offers):
            return f"{line}. {self.kind.capitalize()}s that need less than their portion are served first."
        whole = mine.granted == mine.offered
        return f"{line}." if whole else f"{line}, rounded down to {self._format_amount(mine.granted)}."

    def _format_percentage_with_adjustment(self, mine: Offer) -> str:
        if mine.part == mine.plain:
            return _format_percent(mine.part)
        used, k = format_number(float(self.mine.usage)), format_number(float(self.division.k))
        adjusted = f"adjusted to {_format_percent(mine.part)} for its decayed usage of {used} (K {k})"
        return f"{_format_percent(mine.plain)}, {adjusted},"

    def _rank_suffix(self, round_: Round) -> str:
        ranks = {queue.rank for queue in self.division.inputs}
        return f" in rank {round_.rank}" if len(ranks) > 1 else ""

    def _explain_remainder(self, round_: Round) -> str:
        mine = self._own_offer_in_round(round_)
        result = self._format_amount(mine.granted) if mine.granted else "none"
        remainder = self._format_amount(mine.offered) if mine.offered else "0"
        return (
            f"Left after rounding: {self._format_amount(round_.left)}. "
            f"{self.name}'s remainder is {remainder}{self._compare_remainder(round_, mine)}, "
            f"so {self.name} gets {result}."
        )

    def _compare_remainder(self, round_: Round, mine: Offer) -> str:
        served = [offer for offer in round_.offers if offer.granted]
        others = [offer for offer in (round_.offers if mine.granted else served) if offer is not mine]
        if mine.granted:
            unserved = [offer for offer in others if not offer.granted]
            if not unserved:
                return ""
            rival = unserved[0]
            relation = "more than" if mine.offered > rival.offered else "as much as"
        else:
            rival = served[-1]
            relation = "less than" if mine.offered < rival.offered else "as much as"
        return f", {relation} {self.display_name(rival.queue)}'s{self._explain_tie(mine, rival)}"

    def _explain_tie(self, mine: Offer, rival: Offer) -> str:
        if mine.offered != rival.offered:
            return f" ({self._format_amount(rival.offered)})"
        first, second = (mine, rival) if mine.granted else (rival, mine)
        ages = [
            queue.created for offer in (first, second) if (queue := self.division.queue_input(offer.queue))
        ]
        why = "is older" if ages[0] != ages[1] else "comes first by name"
        return f", but {self.name if first is mine else self.display_name(first.queue)} {why}"

    def _rounds_in_phase(self, phase: str) -> list[Round]:
        name = self.mine.queue
        return [
            round_
            for round_ in self.division.rounds
            if round_.within == phase and any(offer.queue == name for offer in round_.offers)
        ]

    def _own_offer_in_round(self, round_: Round) -> Offer:
        return next(offer for offer in round_.offers if offer.queue == self.mine.queue)


def _format_percent(part: Fraction) -> str:
    return f"{format_number(round(float(part) * MILLI) / 10)}%"
