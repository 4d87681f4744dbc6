"""SGLang engines."""

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from projects.serving.base import Identity, ServingError, Trouble
from projects.serving.metrics import reading
from projects.serving.wire import Answer, Wire

HEALTH_SECONDS = 20.0  # a health check generates a token behind whatever runs
PARAMETERS = (
    "model_path", "dtype", "quantization", "context_length", "tp_size", "pp_size", "kv_cache_dtype",
)  # fmt: skip
FIRST_PORT, PORTS = 20_000, 9_000  # below 30000, SGLang's own, and below what systems hand out by themselves
SENDER, RECEIVER = 0, 1
MOST_RANKS = 1024


class SGLangEngines:
    kind = "sglang"
    syncs_weights = True

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def health(self, engine: str) -> None:
        self.wire.get(engine, "/health_generate", seconds=HEALTH_SECONDS).or_refused()

    def identity(self, engine: str) -> Identity:
        said = self._page(engine, "/server_info", "/get_server_info")
        model = said.get("served_model_name") or said.get("model_path")
        if not isinstance(model, str):
            raise ServingError(Trouble.UNREADABLE, engine, "it names no model")
        parameters = tuple((name, str(said[name])) for name in PARAMETERS if name in said)
        ranks, version = _ranks(engine, said.get("tp_size", 1)), str(said.get("version", ""))
        return Identity(model, self.weight_version(engine), ranks, version, parameters)

    def metrics(self, engine: str) -> str:
        return self.wire.get(engine, "/metrics").or_refused().text()

    def weight_version(self, engine: str) -> str | None:
        said = self._page(engine, "/model_info", "/get_model_info").get("weight_version")
        if said is None or isinstance(said, bool) or not isinstance(said, str | int):
            return None
        return str(said) or None

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        """Rank by rank the two meet at ports of the seed's machine, then the seed sends. Each of the calls
        returns only when the other engine has joined in, so both are made at once."""
        ranks = {engine: self.identity(engine).ranks for engine in (seed, to)}
        if ranks[seed] != ranks[to]:
            said = f"the seed has {ranks[seed]} ranks and this engine has {ranks[to]}"
            raise ServingError(Trouble.REFUSED, to, said)
        meeting = {
            "master_address": urlsplit(seed).hostname,
            "ports": ",".join(str(port) for port in _ports(group, ranks[seed])),
            "group_name": group,
        }

        def join(engine: str, rank: int) -> None:
            asked = {**meeting, "group_rank": rank, "world_size": 2, "backend": "nccl"}
            self._do(engine, "/init_weights_send_group_for_remote_instance", asked, seconds)

        def send(engine: str, _: int) -> None:
            self._do(engine, "/send_weights_to_remote_instance", meeting, seconds)

        _both(join, seed, to)
        _both(send, seed, to)

    def set_weight_version(self, engine: str, version: str) -> None:
        self._do(engine, "/update_weight_version", {"new_version": version, "abort_all_requests": False})

    def pause(self, engine: str) -> None:
        """Retracted requests wait in the engine and are worked out again; SGLang's default would end them."""
        self.wire.post(engine, "/pause_generation", {"mode": "retract"}).or_refused()

    def resume(self, engine: str) -> None:
        self.wire.post(engine, "/continue_generation", {}).or_refused()

    def flush(self, engine: str) -> None:
        self.wire.post(engine, "/flush_cache").or_refused()

    def running_requests(self, engine: str) -> int | None:
        """Its gauges lag behind by some steps, so the scheduler itself is asked where it answers."""
        answer = self.wire.get(engine, "/v1/loads")
        if answer.status != HTTPStatus.NOT_FOUND:
            return _at_work(engine, answer.or_refused().json().get("loads"))
        seen = reading(engine, self.metrics(engine))
        return None if seen.running is None else round(seen.running + (seen.queued or 0))

    def abort(self, engine: str) -> None:
        self.wire.post(engine, "/abort_request", {"rid": "", "abort_all": True}).or_refused()

    def _page(self, engine: str, path: str, older: str) -> dict[str, Any]:
        answer = self.wire.get(engine, path)
        if answer.status == HTTPStatus.NOT_FOUND:
            answer = self.wire.get(engine, older)
        return answer.or_refused().json()

    def _do(self, engine: str, path: str, asked: Mapping[str, Any], seconds: float | None = None) -> None:
        """These answer with `success`, and a message."""
        answer = self.wire.post(engine, path, asked, seconds=seconds)
        if answer.status == HTTPStatus.BAD_REQUEST:
            raise ServingError(Trouble.REFUSED, engine, _message(answer))
        if answer.or_refused().json().get("success") is not True:
            raise ServingError(Trouble.REFUSED, engine, _message(answer))


def _both(call: Callable[[str, int], None], seed: str, to: str) -> None:
    """The first that fails is told at once: the other may wait for its partner for long."""
    pool = ThreadPoolExecutor(2, thread_name_prefix="weights")
    try:
        asked = [pool.submit(call, seed, SENDER), pool.submit(call, to, RECEIVER)]
        done, _ = wait(asked, return_when=FIRST_EXCEPTION)
        for future in asked:
            if future in done:
                future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ports(group: str, ranks: int) -> range:
    """Where the two meet: spread by the group's name, so that two copies hardly ever ask for the same."""
    spread = int.from_bytes(hashlib.sha256(group.encode()).digest()[:4])
    first = FIRST_PORT + spread % (PORTS - ranks)
    return range(first, first + ranks)


def _ranks(engine: str, said: object) -> int:
    if isinstance(said, int) and not isinstance(said, bool) and 1 <= said <= MOST_RANKS:
        return said
    raise ServingError(Trouble.UNREADABLE, engine, "it says that it runs on no possible number of ranks")


def _at_work(engine: str, loads: object) -> int | None:
    if not isinstance(loads, list) or not all(isinstance(load, dict) for load in loads):
        raise ServingError(Trouble.UNREADABLE, engine, "its loads are no list")
    counts = [load.get(name) for load in loads for name in ("num_running_reqs", "num_waiting_reqs")]
    if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
        return None
    return sum(counts)


def _message(answer: Answer) -> str:
    said = answer.json().get("message")
    return str(said)[:200] if said else "it says that it failed, not why"
