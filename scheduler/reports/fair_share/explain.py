"""Sentences that explain a fair share."""

from collections.abc import Callable, Iterator
from fractions import Fraction

from berth.core.amounts import MILLI
from berth.core.words import amount, figure
from scheduler.engine.fair_share.trace import Division, Offer, QueueInput, Round

Call = Callable[[str], str]  # what the reader may be told a queue is called


def sentences(division: Division, queue: str, called: Call = str) -> list[str]:
    """From what it asks for to what it gets; the amounts that are given add up to the share."""
    mine = division.of(queue)
    assert mine is not None, "who asks is one of those who divide"
    return list(_Story(division, mine, called).lines())


class _Story:
    def __init__(self, division: Division, mine: QueueInput, called: Call) -> None:
        self.division, self.mine, self.called = division, mine, called

    def lines(self) -> Iterator[str]:
        mine = self.mine
        yield self._asked()
        if mine.wanted > 0:
            yield from self._within_quota()
            if mine.wanted > sum(self._of(each).taken for each in self._rounds("quota")):
                yield from self._beyond_quota()
        yield f"Fair share: {self._told(mine.share)}."

    def _told(self, value: Fraction | int | None) -> str:
        """Of an offer thousandths, rounded down: what is told was never more than what there was."""
        return amount(self.division.resource, value if value is None else int(value))

    def _asked(self) -> str:
        mine = self.mine
        asked = f"It holds and asks for {self._told(mine.requested)} in all"
        if mine.wanted >= mine.requested:
            return f"{asked}."
        allowed = self._told(mine.wanted)
        if mine.limit is not None and mine.limit == mine.wanted:
            return f"{asked}; its limit allows {allowed}."
        if not mine.over_quota and mine.quota == mine.wanted:
            return f"{asked}; it may not go beyond its quota of {allowed}."
        return f"{asked}; what it and its projects may hold allows {allowed}."

    def _within_quota(self) -> Iterator[str]:
        mine, rounds = self.mine, self._rounds("quota")
        if mine.quota == 0:
            yield "It has no quota."
            return
        quota = "unlimited" if mine.quota is None else self._told(mine.quota)
        goal = mine.wanted if mine.quota is None else min(mine.quota, mine.wanted)
        got = sum(self._of(each).taken for each in rounds)
        if got == goal and mine.wanted <= goal:
            yield f"Its quota is {quota}: all that it asks for is within it."
        elif got == goal:
            yield f"Its quota is {quota}: within it, it gets {self._told(goal)}."
        elif not rounds:
            yield f"Its quota is {quota}, but those of a higher rank leave nothing for rank {mine.rank}."
        else:
            yield f"Its quota is {quota}, but quotas of rank {mine.rank} are oversold: {self._scarce()}."
            yield from self._each(rounds, "quota")

    def _scarce(self) -> str:
        same = [each for each in self.division.brought if each.rank == self.mine.rank]
        due = sum(each.wanted if each.quota is None else min(each.quota, each.wanted) for each in same)
        left = self._rounds("quota")[0].left
        return f"they ask for {self._told(due)} within quota, and {self._told(left)} can be given to them"

    def _beyond_quota(self) -> Iterator[str]:
        mine, rounds = self.mine, self._rounds("over_quota")
        if rounds:
            yield from self._each(rounds, "quota" if self.division.by_quota else "weight")
        elif mine.weight == 0 and self.division.by_quota:
            yield "Weights are switched off: without a quota it has no part in what quotas leave over."
        elif mine.weight == 0:
            yield "Its weight is 0: it has no part in what quotas leave over."
        else:
            above = any(each.rank > mine.rank for each in self.division.brought)
            yield f"Quotas{' and higher ranks' if above else ''} leave nothing over for it."

    def _each(self, rounds: list[Round], by: str) -> Iterator[str]:
        for number, each in enumerate(rounds):
            if each.phase == "remainder":
                yield self._remainder(each)
            else:
                yield self._offer(each, by, first=number == 0)

    def _offer(self, found: Round, by: str, *, first: bool) -> str:
        mine = self._of(found)
        line = (
            f"{self._told(found.left)} {'' if first else 'still '}left to divide by {by}{self._rank(found)}"
        )
        if len(found.offers) == 1:
            return f"{line}, and nobody else asks: it takes {self._told(mine.taken)}."
        line = f"{line}: its part of {self._part(mine)} is {self._told(mine.offered)}"
        if mine.taken == mine.needed:
            return f"{line}, and it needs no more than {self._told(mine.taken)}."
        if any(each.taken == each.needed for each in found.offers):
            return f"{line}; those who need less than their part take that first."
        whole = mine.taken == mine.offered
        return f"{line}." if whole else f"{line}, in whole units {self._told(mine.taken)}."

    def _part(self, mine: Offer) -> str:
        """20 %, or with a history: 50 %, made 40 % by its past use of 0.7 (K 0.5),"""
        if mine.part == mine.plain:
            return _percent(mine.part)
        used, k = figure(float(self.mine.usage)), figure(float(self.division.k))
        return f"{_percent(mine.plain)}, made {_percent(mine.part)} by its past use of {used} (K {k}),"

    def _rank(self, found: Round) -> str:
        ranks = {each.rank for each in self.division.brought}
        return f" in rank {found.rank}" if len(ranks) > 1 else ""

    def _remainder(self, found: Round) -> str:
        """To whom the left-over units go, and why to them."""
        mine = self._of(found)
        got = f"it gets {self._told(mine.taken)}" if mine.taken else "it gets none of that"
        cut = f"{self._told(mine.offered) if mine.offered else 'nothing'} of its part was cut off"
        return f"{self._told(found.left)} left over by rounding: {cut}, {self._why(found, mine)}; {got}."

    def _why(self, found: Round, mine: Offer) -> str:
        served = [each for each in found.offers if each.taken]
        others = [each for each in (served if not mine.taken else found.offers) if each is not mine]
        if mine.taken:
            unserved = [each for each in others if not each.taken]
            if not unserved:
                return "and its turn comes"
            rival = unserved[0]
            verb = "more than" if mine.offered > rival.offered else "as much as"
        else:
            rival = served[-1]
            verb = "less than" if mine.offered < rival.offered else "as much as"
        return f"{verb} of {self.called(rival.queue)}'s{self._tie(mine, rival)}"

    def _tie(self, mine: Offer, rival: Offer) -> str:
        if mine.offered != rival.offered:
            return f" ({self._told(rival.offered)})"
        first, second = (mine, rival) if mine.taken else (rival, mine)
        ages = [found.created for each in (first, second) if (found := self.division.of(each.queue))]
        why = "is the older" if ages[0] != ages[1] else "comes first by name"
        return f", but {'it' if first is mine else self.called(first.queue)} {why}"

    def _rounds(self, phase: str) -> list[Round]:
        name = self.mine.queue
        return [
            each
            for each in self.division.rounds
            if each.within == phase and any(offer.queue == name for offer in each.offers)
        ]

    def _of(self, found: Round) -> Offer:
        return next(each for each in found.offers if each.queue == self.mine.queue)


def _percent(part: Fraction) -> str:
    return f"{figure(round(float(part) * MILLI) / 10)} %"
