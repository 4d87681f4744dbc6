"""Fake inference engines and a fake router that tests can script."""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from projects.serving.base import ErrorKind, Identity, ServingError, Worker


@dataclass(frozen=True, slots=True)
class Fail:
    """Makes the next call fail. With `after`, the call takes effect first, as if its response were lost."""

    kind: ErrorKind = ErrorKind.REJECTED
    message: str = "scripted failure"
    after: bool = False


class Script:
    """Recorded calls and scripted failures."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._next_failures: dict[tuple[str, str], deque[Fail | None]] = {}
        self._always: dict[tuple[str, str], Fail] = {}

    def next(self, call: str, *failures: Fail | None, engine: str = "") -> None:
        """Script the next calls to one engine or, by default, to any engine: one entry per call.

        None lets a call succeed.
        """
        self._next_failures.setdefault((call, engine), deque()).extend(failures)

    def always(self, call: str, failure: Fail | None, *, engine: str = "") -> None:
        """Make every call fail with `failure`, or stop failing if `failure` is None."""
        if failure is None:
            self._always.pop((call, engine), None)
        else:
            self._always[call, engine] = failure

    def count(self, call: str) -> int:
        return Counter(name for name, _ in self.calls)[call]

    def enter(self, call: str, engine: str) -> Fail | None:
        """Record the call and raise its scripted failure.

        A failure that follows the call's effect is returned instead, and the caller must raise it.
        """
        self.calls.append((call, engine))
        fail = self._always.get((call, engine)) or self._always.get((call, ""))
        for key in ((call, engine), (call, "")):
            if fail is None and self._next_failures.get(key):
                fail = self._next_failures[key].popleft()
        if fail is not None and not fail.after:
            raise ServingError(fail.kind, engine, fail.message)
        return fail

    def leave(self, fail: Fail | None, engine: str) -> None:
        if fail is not None:
            raise ServingError(fail.kind, engine, fail.message)


@dataclass(frozen=True, slots=True)
class FakeEngine:
    """An inference engine.

    `weights` is its actual weight version, `identity.weight_version` the reported one.
    """

    identity: Identity = field(default_factory=lambda: Identity("default", "1"))
    weights: str = "1"
    metrics: str = ""
    running: int = 0
    healthy: bool = True
    paused: bool = False
    flushed: int = 0
    aborted: int = 0


class FakeEngines(Script):
    """Inference engines of one kind by address. An address without an engine is unreachable."""

    kind = "fake"

    def __init__(self, *, syncs_weights: bool = True) -> None:
        super().__init__()
        self.syncs_weights = syncs_weights
        self.engines: dict[str, FakeEngine] = {}

    # --- controlled by the test

    def appear(self, address: str, engine: FakeEngine | None = None) -> None:
        self.engines[address] = engine or FakeEngine()

    def vanish(self, address: str) -> None:
        self.engines.pop(address, None)

    def run(self, address: str, requests: int) -> None:
        self._set(address, running=requests)

    def report(self, address: str, metrics: str) -> None:
        self._set(address, metrics=metrics)

    def make_unhealthy(self, address: str) -> None:
        self._set(address, healthy=False)

    def hold(self, address: str, weights: str) -> None:
        identity = replace(self._engine(address).identity, weight_version=weights)
        self._set(address, weights=weights, identity=identity)

    # --- the port

    def check_health(self, engine: str) -> None:
        fail = self.enter("health", engine)
        if not self._engine(engine).healthy:
            raise ServingError(ErrorKind.REJECTED, engine, "responded with 503: not healthy")
        self.leave(fail, engine)

    def identity(self, engine: str) -> Identity:
        fail = self.enter("identity", engine)
        identity = self._engine(engine).identity
        self.leave(fail, engine)
        return identity

    def metrics(self, engine: str) -> str:
        fail = self.enter("metrics", engine)
        text = self._engine(engine).metrics
        self.leave(fail, engine)
        return text

    def weight_version(self, engine: str) -> str | None:
        fail = self.enter("weight_version", engine)
        version = self._engine(engine).identity.weight_version
        self.leave(fail, engine)
        return version

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        self._require_weight_sync(to)
        fail = self.enter("copy_weights", to)
        self._set(to, weights=self._engine(seed).weights)
        self.leave(fail, to)

    def set_weight_version(self, engine: str, version: str) -> None:
        self._require_weight_sync(engine)
        fail = self.enter("set_weight_version", engine)
        self._set(engine, identity=replace(self._engine(engine).identity, weight_version=version))
        self.leave(fail, engine)

    def pause(self, engine: str) -> None:
        self._require_weight_sync(engine)
        fail = self.enter("pause", engine)
        self._set(engine, paused=True)
        self.leave(fail, engine)

    def resume(self, engine: str) -> None:
        self._require_weight_sync(engine)
        fail = self.enter("resume", engine)
        self._set(engine, paused=False)
        self.leave(fail, engine)

    def flush(self, engine: str) -> None:
        self._require_weight_sync(engine)
        fail = self.enter("flush", engine)
        now = self._engine(engine)
        if now.running and not now.paused:
            raise ServingError(ErrorKind.REJECTED, engine, "responded with 400: requests are running")
        self._set(engine, flushed=now.flushed + 1)
        self.leave(fail, engine)

    def unfinished_requests(self, engine: str) -> int | None:
        fail = self.enter("unfinished_requests", engine)
        running = self._engine(engine).running
        self.leave(fail, engine)
        return running

    def abort(self, engine: str) -> None:
        fail = self.enter("abort", engine)
        now = self._engine(engine)
        self._set(engine, running=0, aborted=now.aborted + now.running)
        self.leave(fail, engine)

    def _require_weight_sync(self, engine: str) -> None:
        if not self.syncs_weights:
            raise ServingError(ErrorKind.UNSUPPORTED, engine, "this kind of engine does not sync weights")

    def _engine(self, engine: str) -> FakeEngine:
        if engine not in self.engines:
            raise ServingError(ErrorKind.UNREACHABLE, engine, "cannot connect: Connection refused")
        return self.engines[engine]

    def _set(self, engine: str, **changes: object) -> None:
        self.engines[engine] = replace(self._engine(engine), **changes)  # type: ignore[arg-type]


class FakeRouter(Script):
    """An in-memory router.

    With `reports_running`, it reports the requests in flight. Without `supports_marks`, it removes engines
    that are marked unhealthy.
    """

    kind = "fake"

    def __init__(self, *, reports_running: bool = True, supports_marks: bool = True) -> None:
        super().__init__()
        self.reports_running, self.supports_marks = reports_running, supports_marks
        self.registered: dict[str, Worker] = {}

    # --- controlled by the test

    def run(self, engine: str, requests: int) -> None:
        self.registered[engine] = replace(self.registered[engine], running=requests)

    def forget(self, engine: str) -> None:
        """Forget an engine, as a router does when it restarts."""
        self.registered.pop(engine, None)

    # --- the port

    def register(self, engine: str, *, model: str) -> None:
        fail = self.enter("register", engine)
        self.registered.setdefault(engine, Worker(engine, healthy=True, running=0, model=model))
        self.leave(fail, engine)

    def unregister(self, engine: str) -> None:
        fail = self.enter("unregister", engine)
        self.registered.pop(engine, None)
        self.leave(fail, engine)

    def mark_unhealthy(self, engine: str) -> None:
        fail = self.enter("mark_unhealthy", engine)
        worker = self.registered.pop(engine, None)
        if worker is not None and self.supports_marks:
            self.registered[engine] = replace(worker, healthy=False)
        self.leave(fail, engine)

    def mark_healthy(self, engine: str) -> None:
        fail = self.enter("mark_healthy", engine)
        worker = self.registered.get(engine) or Worker(engine, healthy=True, running=0)
        self.registered[engine] = replace(worker, healthy=True)
        self.leave(fail, engine)

    def workers(self) -> tuple[Worker, ...]:
        fail = self.enter("workers", "")
        self.leave(fail, "")
        return tuple(self._reported(self.registered[address]) for address in sorted(self.registered))

    def unfinished_requests(self, engine: str) -> int | None:
        fail = self.enter("unfinished_requests", engine)
        worker = self.registered.get(engine)
        self.leave(fail, engine)
        return self._reported(worker).running if worker else 0

    def _reported(self, worker: Worker) -> Worker:
        return worker if self.reports_running else replace(worker, running=None)
