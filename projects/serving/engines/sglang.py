"""Client for SGLang engines."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from projects.serving.base import ErrorKind, Identity, ServingError
from projects.serving.http_client import ClientResponse, HttpClient
from projects.serving.metrics import parse_metrics

HEALTH_SECONDS = 20.0  # a health check waits for requests in progress, then generates one token
PARAMETERS = (
    "model_path", "dtype", "quantization", "context_length", "tp_size", "pp_size", "kv_cache_dtype",
)  # fmt: skip
FIRST_PORT, PORTS = 20_000, 9_000  # port range below the ephemeral ports and SGLang's own (from 30000)
SENDER, RECEIVER = 0, 1
MAX_RANKS = 1024


class SGLangEngines:
    kind = "sglang"
    syncs_weights = True

    def __init__(self, http_client: HttpClient) -> None:
        self.http_client = http_client

    def check_health(self, engine: str) -> None:
        self.http_client.get(engine, "/health_generate", seconds=HEALTH_SECONDS).raise_for_status()

    def identity(self, engine: str) -> Identity:
        info = self._get_info(engine, "/server_info", "/get_server_info")
        model = info.get("served_model_name") or info.get("model_path")
        if not isinstance(model, str):
            raise ServingError(ErrorKind.UNREADABLE, engine, "the engine reports no model")
        parameters = tuple((name, str(info[name])) for name in PARAMETERS if name in info)
        ranks, version = _parse_ranks(engine, info.get("tp_size", 1)), str(info.get("version", ""))
        return Identity(model, self.weight_version(engine), ranks, version, parameters)

    def metrics(self, engine: str) -> str:
        return self.http_client.get(engine, "/metrics").raise_for_status().text()

    def weight_version(self, engine: str) -> str | None:
        info = self._get_info(engine, "/model_info", "/get_model_info").get("weight_version")
        if info is None or isinstance(info, bool) or not isinstance(info, str | int):
            return None
        return str(info) or None

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        """Connect the ranks of both engines through ports on the seed's machine, then send the weights."""
        ranks = {engine: self.identity(engine).ranks for engine in (seed, to)}
        if ranks[seed] != ranks[to]:
            info = f"the seed has {ranks[seed]} ranks and this engine has {ranks[to]}"
            raise ServingError(ErrorKind.REJECTED, to, info)
        connection = {
            "master_address": urlsplit(seed).hostname,
            "ports": ",".join(str(port) for port in _weight_transfer_ports(group, ranks[seed])),
            "group_name": group,
        }

        def join(engine: str, rank: int) -> None:
            body = {**connection, "group_rank": rank, "world_size": 2, "backend": "nccl"}
            self._post_command(engine, "/init_weights_send_group_for_remote_instance", body, seconds)

        def send(engine: str, _: int) -> None:
            self._post_command(engine, "/send_weights_to_remote_instance", connection, seconds)

        # Each call returns only after the other engine has joined.
        _call_both_engines(join, seed, to)
        _call_both_engines(send, seed, to)

    def set_weight_version(self, engine: str, version: str) -> None:
        self._post_command(
            engine, "/update_weight_version", {"new_version": version, "abort_all_requests": False}
        )

    def pause(self, engine: str) -> None:
        """Pause in `retract` mode: requests wait and are recomputed later instead of being aborted."""
        self.http_client.post(engine, "/pause_generation", {"mode": "retract"}).raise_for_status()

    def resume(self, engine: str) -> None:
        self.http_client.post(engine, "/continue_generation", {}).raise_for_status()

    def flush(self, engine: str) -> None:
        self.http_client.post(engine, "/flush_cache").raise_for_status()

    def unfinished_requests(self, engine: str) -> int | None:
        """Return the number of unfinished requests, read from the load endpoint or, on older engines, from
        the metrics.

        Return None if the number is missing or invalid.
        """
        response = self.http_client.get(engine, "/v1/loads")
        if response.status != HTTPStatus.NOT_FOUND:
            return _total_load(engine, response.raise_for_status().json().get("loads"))
        metrics = parse_metrics(engine, self.metrics(engine))
        return None if metrics.running is None else round(metrics.running + (metrics.queued or 0))

    def abort(self, engine: str) -> None:
        self.http_client.post(engine, "/abort_request", {"rid": "", "abort_all": True}).raise_for_status()

    def _get_info(self, engine: str, path: str, legacy_path: str) -> dict[str, Any]:
        response = self.http_client.get(engine, path)
        if response.status == HTTPStatus.NOT_FOUND:
            response = self.http_client.get(engine, legacy_path)
        return response.raise_for_status().json()

    def _post_command(
        self, engine: str, path: str, body: Mapping[str, Any], seconds: float | None = None
    ) -> None:
        """Call an endpoint whose response contains `success` and a message."""
        response = self.http_client.post(engine, path, body, seconds=seconds)
        if response.status == HTTPStatus.BAD_REQUEST:
            raise ServingError(ErrorKind.REJECTED, engine, _error_message(response))
        if response.raise_for_status().json().get("success") is not True:
            raise ServingError(ErrorKind.REJECTED, engine, _error_message(response))


def _call_both_engines(call: Callable[[str, int], None], seed: str, to: str) -> None:
    """Call both engines concurrently, and raise the first error as soon as it occurs."""
    results: SimpleQueue[Exception | None] = SimpleQueue()

    def call_and_report(engine: str, rank: int) -> None:
        try:
            call(engine, rank)
        except Exception as error:
            results.put(error)
        else:
            results.put(None)

    calls = ((seed, SENDER), (to, RECEIVER))
    for each in calls:
        threading.Thread(target=call_and_report, args=each, name="weights", daemon=True).start()
    for _ in calls:
        if error := results.get():
            raise error


def _weight_transfer_ports(group: str, ranks: int) -> range:
    """Return ports derived from the group's name, so that concurrent copies rarely collide."""
    offset = int.from_bytes(hashlib.sha256(group.encode()).digest()[:4])
    first = FIRST_PORT + offset % (PORTS - ranks)
    return range(first, first + ranks)


def _parse_ranks(engine: str, info: object) -> int:
    if isinstance(info, int) and not isinstance(info, bool) and 1 <= info <= MAX_RANKS:
        return info
    raise ServingError(ErrorKind.UNREADABLE, engine, "the engine reports an invalid number of ranks")


def _total_load(engine: str, loads: object) -> int | None:
    if not isinstance(loads, list) or not all(isinstance(load, dict) for load in loads):
        raise ServingError(ErrorKind.UNREADABLE, engine, "the engine did not report its loads as a list")
    counts = [load.get(name) for load in loads for name in ("num_running_reqs", "num_waiting_reqs")]
    if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
        return None
    return sum(counts)


def _error_message(response: ClientResponse) -> str:
    info = response.json().get("message")
    return str(info)[:200] if info else "the engine failed without a message"
