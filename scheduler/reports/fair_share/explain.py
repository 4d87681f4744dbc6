"""Explain a fair share in sentences."""

from collections.abc import Callable, Iterator
from fractions import Fraction

from berth.core.amounts import MILLI
from berth.core.words import format_amount, format_number
from scheduler.engine.fair_share.trace import Division, Offer, QueueInput, Round

DisplayName = Callable[[str], str]  # returns a queue's name, or a placeholder if the queue is hidden


def explain_share(division: Division, queue: str, display_name: DisplayName = str) -> list[str]:
    """Return the sentences that explain a queue's share, from its request to the result.

    The granted amounts add up to the share.
    """
    mine = division.of(queue)
    assert mine is not None, "the queue takes part in the division"
    return list(_ShareExplanation(division, mine, display_name).lines())


class _ShareExplanation:
    def __init__(self, division: Division, mine: QueueInput, display_name: DisplayName) -> None:
        self.division, self.mine, self.display_name = division, mine, display_name

    def lines(self) -> Iterator[str]:
        mine = self.mine
        yield self._explain_request()
        if mine.wanted > 0:
            yield from self._explain_quota()
            if mine.wanted > sum(self._own_offer(each).granted for each in self._rounds("quota")):
                yield from self._explain_over_quota()
        yield f"Fair share: {self._format_amount(mine.share)}."

    def _format_amount(self, value: Fraction | int | None) -> str:
        """Format an amount, rounded down so that no sentence overstates it."""
        return format_amount(self.division.resource, value if value is None else int(value))

    def _explain_request(self) -> str:
        mine = self.mine
        request = f"Total request (allocated and pending): {self._format_amount(mine.requested)}"
        if mine.wanted >= mine.requested:
            return f"{request}."
        allowed = self._format_amount(mine.wanted)
        if mine.limit is not None and mine.limit == mine.wanted:
            return f"{request}; its limit allows {allowed}."
        if not mine.over_quota and mine.quota == mine.wanted:
            return f"{request}; it may not borrow beyond its quota of {allowed}."
        return f"{request}; its limits and those of its projects allow {allowed}."

    def _explain_quota(self) -> Iterator[str]:
        mine, rounds = self.mine, self._rounds("quota")
        if mine.quota == 0:
            yield "It has no quota."
            return
        quota = "unlimited" if mine.quota is None else self._format_amount(mine.quota)
        goal = mine.wanted if mine.quota is None else min(mine.quota, mine.wanted)
        granted = sum(self._own_offer(each).granted for each in rounds)
        if granted == goal and mine.wanted <= goal:
            yield f"Its quota is {quota} and covers the whole request."
        elif granted == goal:
            yield f"Its quota is {quota} and fully available."
        elif not rounds:
            yield f"Its quota is {quota}, but queues of higher rank leave nothing for rank {mine.rank}."
        else:
            oversold = self._describe_oversold_quota()
            yield f"Its quota is {quota}, but quotas of rank {mine.rank} are oversold: {oversold}."
            yield from self._explain_rounds(rounds, "quota")

    def _describe_oversold_quota(self) -> str:
        same = [each for each in self.division.inputs if each.rank == self.mine.rank]
        due = sum(each.wanted if each.quota is None else min(each.quota, each.wanted) for each in same)
        left = self._rounds("quota")[0].left
        return f"{self._format_amount(due)} requested within quota, {self._format_amount(left)} available"

    def _explain_over_quota(self) -> Iterator[str]:
        mine, rounds = self.mine, self._rounds("over_quota")
        if rounds:
            yield from self._explain_rounds(rounds, "quota" if self.division.by_quota else "weight")
        elif mine.weight == 0 and self.division.by_quota:
            yield "Weights are disabled: a queue without quota gets nothing beyond quotas."
        elif mine.weight == 0:
            yield "Its weight is 0: it gets nothing beyond its quota."
        else:
            above = any(each.rank > mine.rank for each in self.division.inputs)
            yield f"Quotas{' and higher ranks' if above else ''} leave nothing to borrow."

    def _explain_rounds(self, rounds: list[Round], by: str) -> Iterator[str]:
        for number, each in enumerate(rounds):
            if each.phase == "remainder":
                yield self._explain_remainder(each)
            else:
                yield self._explain_offer(each, by, first=number == 0)

    def _explain_offer(self, round_: Round, by: str, *, first: bool) -> str:
        mine = self._own_offer(round_)
        left = f"{'Left' if first else 'Then left'} to divide by {by}{self._rank_suffix(round_)}"
        line = f"{left}: {self._format_amount(round_.left)}."
        if len(round_.offers) == 1:
            return f"{line} No other queue requests more: it gets {self._format_amount(mine.granted)}."
        line = f"{line} Its portion of {self._format_portion(mine)} is {self._format_amount(mine.offered)}"
        if mine.granted == mine.needed:
            return f"{line}; it needs only {self._format_amount(mine.granted)}."
        if any(each.granted == each.needed for each in round_.offers):
            return f"{line}. Queues that need less than their portion are served first."
        whole = mine.granted == mine.offered
        return f"{line}." if whole else f"{line}, rounded down to {self._format_amount(mine.granted)}."

    def _format_portion(self, mine: Offer) -> str:
        """Return the portion in percent, before and after any adjustment for decayed usage."""
        if mine.part == mine.plain:
            return _format_percent(mine.part)
        used, k = format_number(float(self.mine.usage)), format_number(float(self.division.k))
        adjusted = f"adjusted to {_format_percent(mine.part)} for its decayed usage of {used} (K {k})"
        return f"{_format_percent(mine.plain)}, {adjusted},"

    def _rank_suffix(self, round_: Round) -> str:
        ranks = {each.rank for each in self.division.inputs}
        return f" in rank {round_.rank}" if len(ranks) > 1 else ""

    def _explain_remainder(self, round_: Round) -> str:
        """Explain which queues get the units left after rounding down."""
        mine = self._own_offer(round_)
        result = f"it gets {self._format_amount(mine.granted)}" if mine.granted else "it gets none"
        remainder = self._format_amount(mine.offered) if mine.offered else "0"
        return (
            f"Left after rounding: {self._format_amount(round_.left)}. "
            f"Its remainder is {remainder}{self._compare_remainder(round_, mine)}: {result}."
        )

    def _compare_remainder(self, round_: Round, mine: Offer) -> str:
        served = [each for each in round_.offers if each.granted]
        others = [each for each in (round_.offers if mine.granted else served) if each is not mine]
        if mine.granted:
            unserved = [each for each in others if not each.granted]
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
        ages = [queue.created for each in (first, second) if (queue := self.division.of(each.queue))]
        why = "is older" if ages[0] != ages[1] else "comes first by name"
        return f", but {'it' if first is mine else self.display_name(first.queue)} {why}"

    def _rounds(self, phase: str) -> list[Round]:
        name = self.mine.queue
        return [
            each
            for each in self.division.rounds
            if each.within == phase and any(offer.queue == name for offer in each.offers)
        ]

    def _own_offer(self, round_: Round) -> Offer:
        return next(each for each in round_.offers if each.queue == self.mine.queue)


def _format_percent(part: Fraction) -> str:
    return f"{format_number(round(float(part) * MILLI) / 10)} %"
