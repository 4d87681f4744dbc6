"""A scriptable provider for tests and simulations."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Fail:
    """Makes the next call fail. If `after` is set, the call takes effect first, as if its response were
    lost.
    """

    kind: ProviderErrorKind = ProviderErrorKind.BROKEN
    message: str = "scripted failure"
    after: bool = False


@dataclass(frozen=True, slots=True)
class ExtraInstances:
    """Makes the next launch request return `more` extra instances. A negative number removes instances."""

    more: int = 0


class FakeProvider:
    """An in-memory provider with at most `capacity` instances.

    Unless `boots_immediately` is set, instances keep booting until `boot` is called.
    """

    has_joining_machines = False

    def __init__(self, *, boots_immediately: bool = True, capacity: int | None = None) -> None:
        self.boots_immediately, self.capacity = boots_immediately, capacity
        self.calls: list[tuple[str, object]] = []
        self.outcomes: dict[str, deque[Fail | ExtraInstances]] = {}
        self.hidden: set[str] = set()
        self._instances: dict[str, tuple[str, Instance]] = {}
        self._answers: dict[str, tuple[Instance, ...]] = {}
        self.previewed = Preview()

    # --- controlled by the test

    def next(self, call: str, *outcomes: Fail | ExtraInstances) -> None:
        """Script the next calls of `provision`, `list_instances` or `terminate`, one entry per call."""
        self.outcomes.setdefault(call, deque()).extend(outcomes)

    def boot(self, *instance_ids: str) -> None:
        """Make the named instances ready, or all instances if no name is passed."""
        for instance_id in instance_ids or tuple(self._instances):
            if self._instances[instance_id][1].state == InstanceState.BOOTING:
                self._set(instance_id, InstanceState.READY)

    def vanish(self, instance_id: str) -> None:
        self._set(instance_id, InstanceState.GONE)

    def interrupt(self, instance_id: str, interruption: Interruption) -> None:
        pool, instance = self._instances[instance_id]
        self._instances[instance_id] = pool, replace(instance, interruption=interruption)

    def appear(self, pool: str, instance: Instance) -> None:
        """Add an instance that was not requested with `provision`."""
        self._instances[instance.instance_id] = pool, instance

    def living(self, pool: str | None = None) -> tuple[Instance, ...]:
        """Return the instances that incur costs now, including unlisted instances."""
        return tuple(instance for _, instance in self._pairs(pool) if instance.state != InstanceState.GONE)

    @property
    def created_count(self) -> int:
        return len(self._instances)

    def count(self, call: str) -> int:
        return Counter(name for name, _ in self.calls)[call]

    # --- the port

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        self.calls.append(("provision", order))
        outcome = self._next_scripted_outcome("provision")
        if isinstance(outcome, Fail) and not outcome.after:
            raise ProviderError(outcome.kind, outcome.message)
        if order.client_token not in self._answers:
            more = outcome.more if isinstance(outcome, ExtraInstances) else 0
            self._answers[order.client_token] = self._make(order, more)
        if isinstance(outcome, Fail):
            raise ProviderError(outcome.kind, outcome.message)
        created = tuple(
            self._instances[instance.instance_id][1] for instance in self._answers[order.client_token]
        )
        return ProvisionResult(
            created, "" if len(created) >= order.count else "no more machines are available"
        )

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        self.calls.append(("list_instances", pool))
        outcome = self._next_scripted_outcome("list_instances")
        if isinstance(outcome, Fail):
            raise ProviderError(outcome.kind, outcome.message)
        listed = [instance for _, instance in self._pairs(pool) if instance.instance_id not in self.hidden]
        return tuple(sorted(listed, key=lambda instance: (instance.ordinal, instance.instance_id)))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        self.calls.append(("terminate", tuple(instance_ids)))
        outcome = self._next_scripted_outcome("terminate")
        if isinstance(outcome, Fail) and not outcome.after:
            raise ProviderError(outcome.kind, outcome.message)
        for instance_id in instance_ids:
            if self._instances.get(instance_id, ("",))[0] == pool:
                self._set(instance_id, InstanceState.GONE)
        if isinstance(outcome, Fail):
            raise ProviderError(outcome.kind, outcome.message)

    def preview(self, pool: str, shape: Shape) -> Preview:
        outcome = self._next_scripted_outcome("preview")
        if isinstance(outcome, Fail):
            raise ProviderError(outcome.kind, outcome.message)
        return self.previewed

    def _make(self, order: LaunchRequest, more: int) -> tuple[Instance, ...]:
        count = order.count + more
        if self.capacity is not None:
            count = min(count, self.capacity - len(self.living()))
        if count <= 0:
            raise ProviderError(ProviderErrorKind.CAPACITY, "no such machine is available")
        created = tuple(self._instance(order, index) for index in range(count))
        self._instances |= {instance.instance_id: (order.pool, instance) for instance in created}
        return created

    def _instance(self, order: LaunchRequest, index: int) -> Instance:
        state = InstanceState.READY if self.boots_immediately else InstanceState.BOOTING
        ordinal = order.start_ordinal + index
        devices = tuple(str(device) for device in range(order.shape.gpus))
        instance_id = f"fake-{order.client_token[:8]}-{ordinal}"
        return Instance(instance_id, ordinal, state, order.client_token, f"10.0.0.{ordinal}", devices)

    def _next_scripted_outcome(self, call: str) -> Fail | ExtraInstances | None:
        waiting = self.outcomes.get(call)
        return waiting.popleft() if waiting else None

    def _set(self, instance_id: str, state: InstanceState) -> None:
        pool, instance = self._instances[instance_id]
        self._instances[instance_id] = pool, replace(instance, state=state)

    def _pairs(self, pool: str | None) -> Iterator[tuple[str, Instance]]:
        return (pair for pair in self._instances.values() if pool is None or pair[0] == pool)
