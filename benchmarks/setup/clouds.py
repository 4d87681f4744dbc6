"""Simulated provider whose machines may boot slowly, fail to boot, or be interrupted."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pools.providers.base import (
    Instance,
    InstanceState,
    Interruption,
    LaunchRequest,
    ProviderError,
    ProviderErrorKind,
    ProvisionResult,
    Shape,
)
from pools.providers.preview import Preview

AT_ONCE = 500  # maximum number of instances per call
WARNING = timedelta(seconds=120)


@dataclass(frozen=True)
class FaultRates:
    """Probabilities of faults per call or machine. `interrupted` and `vanishes` are per machine-hour."""

    rejected: float = 0.05
    answer_lost: float = 0.02
    listing_fails: float = 0.01
    not_ended: float = 0.02
    never_boots: float = 0.01
    interrupted: float = 0.10
    vanishes: float = 0.05
    boots_in: tuple[float, float] = (40.0, 180.0)


@dataclass(slots=True)
class _Machine:
    instance: Instance
    ready_at: datetime | None
    interruption_at: datetime | None = None


class Cloud:
    """Simulated provider whose clock only `pass_time` advances."""

    has_joining_machines = False

    def __init__(self, now: datetime, luck: FaultRates, seed: int) -> None:
        self.now, self._luck, self._chance = now, luck, random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()
        self._machines: dict[str, _Machine] = {}
        self._answers: dict[str, tuple[str, ...]] = {}

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        hours = seconds / 3600
        for instance_id, machine in list(self._machines.items()):
            if machine.interruption_at is not None and self.now >= machine.interruption_at:
                del self._machines[instance_id]
            elif machine.interruption_at is None and self._happens(self._luck.interrupted * hours):
                self.fates["interrupted"] += 1
                machine.interruption_at = self.now + WARNING
                interruption = Interruption("the provider reclaims the machine", machine.interruption_at)
                machine.instance = replace(machine.instance, interruption=interruption)
            elif self._happens(self._luck.vanishes * hours):
                self.fates["vanished"] += 1
                del self._machines[instance_id]
            elif machine.ready_at is not None and self.now >= machine.ready_at:
                machine.instance = replace(machine.instance, state=InstanceState.READY)

    def paid(self) -> set[str]:
        return set(self._machines)

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        self.calls["provision"] += 1
        if order.client_token not in self._answers:
            if self._happens(self._luck.rejected):
                self.calls["provision rejected"] += 1
                raise ProviderError(ProviderErrorKind.CAPACITY, "no such machine now")
            self._answers[order.client_token] = tuple(self._create_machines(order))
        if self._happens(self._luck.answer_lost):
            self.calls["provision answer lost"] += 1
            raise ProviderError(ProviderErrorKind.TIMEOUT, "no answer")
        made = self._answers[order.client_token]
        return ProvisionResult(tuple(self._machines[i].instance for i in made if i in self._machines))

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        self.calls["list"] += 1
        if self._happens(self._luck.listing_fails):
            raise ProviderError(ProviderErrorKind.THROTTLED, "too many calls")
        return tuple(machine.instance for machine in self._machines.values())

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        self.calls["terminate"] += 1
        if self._happens(self._luck.not_ended):
            self.calls["terminate failed"] += 1
            raise ProviderError(ProviderErrorKind.BROKEN, "internal error")
        for instance_id in instance_ids:
            self._machines.pop(instance_id, None)

    def preview(self, pool: str, shape: Shape) -> Preview:
        return Preview()

    def _create_machines(self, order: LaunchRequest) -> Iterator[str]:
        for index in range(min(order.count, AT_ONCE)):
            ordinal = order.start_ordinal + index
            instance_id = f"{order.client_token[:12]}-{ordinal}"
            dead = self._happens(self._luck.never_boots)
            self.fates["never booted"] += dead
            after = timedelta(seconds=self._chance.uniform(*self._luck.boots_in))
            instance = Instance(instance_id, ordinal, InstanceState.BOOTING, order.client_token, "10.0.0.1")
            self._machines[instance_id] = _Machine(instance, None if dead else self.now + after)
            yield instance_id

    def _happens(self, chance: float) -> bool:
        return self._chance.random() < chance
