"""A fake slurmrestd for the fake Slurm cluster. Its responses were recorded from Slurm 22.05 and 24.11."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pools.providers.slurm.jobs import parse_time
from tests.fakes.slurm import FakeSlurm
from tests.fakes.slurm.programs import LIVING, PARTITIONS, Failed, check, start_jobs, submit

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJiZXJ0aCJ9.c2lnbmF0dXJl"
USER = "berth"
NOW = 1_800_000_000
Fault = Callable[["Handler"], None]


class FakeSlurmRest:
    """Serves one API version. A fault replaces the response to requests whose path contains its text."""

    def __init__(self, slurm: FakeSlurm, version: str = "v0.0.42") -> None:
        self.slurm, self.version = slurm, version
        self.faults: dict[str, Fault] = {}
        self.calls: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.received: dict[str, Any] = {}  # body of the latest request
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"rest": self}))
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.is_over = threading.Event()  # set to end faults that hang

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def is_structured(self) -> bool:
        return self.version >= "v0.0.39"

    def number(self, value: int | None) -> Any:
        if not self.is_structured:
            return value
        return {"set": value is not None, "infinite": False, "number": value or 0}

    def state(self, name: str) -> Any:
        return [name] if self.is_structured else name


@contextmanager
def serve(rest: FakeSlurmRest) -> Iterator[FakeSlurmRest]:
    thread = threading.Thread(target=rest.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield rest
    finally:
        rest.is_over.set()
        rest.server.shutdown()
        rest.server.server_close()


class Handler(BaseHTTPRequestHandler):
    rest: FakeSlurmRest

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def do_DELETE(self) -> None:
        self._respond()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def send_json(self, answer: Mapping[str, Any], status: int = 200) -> None:
        meta = {"Slurm": {"release": "22.05.8"}}
        self.send(status, json.dumps({"meta": meta, "errors": [], **answer}).encode())

    def _respond(self) -> None:
        self.rest.calls.append(f"{self.command} {self.path}")
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rest.received = json.loads(self.rfile.read(length)) if length else {}
        fault = next((each for text, each in self.rest.faults.items() if text in self.path), None)
        if fault is not None:
            fault(self)
        elif self.headers.get("X-SLURM-USER-NAME") != USER:
            self.send(401, b"Authentication failure")
        elif self.headers.get("X-SLURM-USER-TOKEN") != TOKEN:
            error = {"error_number": 1007, "error": "Protocol authentication error"}
            self.send_json({"errors": [error]}, 511)
        else:
            self.route(body)

    def route(self, body: dict[str, Any]) -> None:
        """Perform the request and send the regular response."""
        with self.rest.slurm.open() as state:
            start_jobs(state)
            status, answer = self._answer(state, body)
        self.send_json(answer, status)

    def _answer(self, state: dict[str, Any], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        rest, path = self.rest, urlsplit(self.path).path.rstrip("/")
        prefix = f"/slurm/{rest.version}"
        match path.removeprefix(prefix):
            case "/openapi/v3":
                paths = [path, f"{prefix}/jobs/"]
                paths += [f"/slurmdb/{rest.version}/jobs/"] if state.get("accounting") else []
                return 200, {"paths": {key: {} for key in paths}}
            case "/jobs":
                return 200, {"jobs": [self._job(job) for job in state["jobs"] if not job.get("purged")]}
            case "/partitions":
                return 200, {"partitions": [self._partition(name) for name in PARTITIONS]}
            case "/nodes":
                return 200, {"nodes": [self._node(state, name) for name in state["machines"]]}
            case "/job/submit":
                rest.bodies.append(body)
                return self._submit(state, body)
            case api if self.command == "DELETE":
                return self._cancel(state, api.rpartition("/")[2])
        if path == f"/slurmdb/{rest.version}/jobs":
            return self._accounting(state)
        return 404, {}

    def _submit(self, state: dict[str, Any], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        job = body["job"]
        gres = job.get("gres") or job.get("tres_per_node", "").removeprefix("gres/")
        named = {"partition": job["partition"], "job-name": job["name"], "gres": gres}
        try:
            check(state, named)
            return 200, {"job_id": int(submit(state, named, body["script"], []))}
        except Failed as failed:
            message = str(failed).rpartition("failed: ")[2]
            return 500, {"errors": [{"error_number": 2000, "error": message}]}

    def _cancel(self, state: dict[str, Any], number: str) -> tuple[int, dict[str, Any]]:
        jobs = [job for job in state["jobs"] if job["JobID"] == number]
        for job in jobs:
            job["State"] = "CANCELLED" if job["State"] in LIVING else job["State"]
        error = {"error_number": 2017, "error": "Invalid job id specified"}
        return (200, {}) if jobs else (500, {"errors": [error]})

    def _accounting(self, state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if state["accounting"] == "down":
            error = {"error_number": 7000, "error": "Unable to connect to database", "source": "slurmdb"}
            return 500, {"errors": [error], "jobs": []}
        names = parse_qs(urlsplit(self.path).query)["job_name"][0].split(",")
        jobs = [job for job in state["jobs"] if job["Name"] in names]
        rows = [
            {"job_id": int(job["JobID"]), "name": job["Name"], "user": USER,
             "state": {"current": self.rest.state(job["State"])}}
            for job in jobs
        ]  # fmt: skip
        error = {"error_number": 9003, "error": "Nothing found with query"}
        return 200, {"jobs": rows, "errors": [] if rows else [error]}

    def _job(self, job: dict[str, Any]) -> dict[str, Any]:
        rest, limit = self.rest, parse_time(job["TimeLimit"])
        left, code = parse_time(job["TimeLeft"]), int(job["exit_code"])
        return {
            "job_id": int(job["JobID"]), "name": job["Name"], "user_name": job.get("user", USER),
            "job_state": rest.state(job["State"]), "state_reason": job["Reason"], "nodes": job["NodeList"],
            "time_limit": rest.number(None if limit is None else limit // 60),
            "end_time": rest.number(NOW + (left or 0)), "restart_cnt": int(job["restartcnt"]),
            "tres_per_node": job["tres-per-node"],
            "exit_code": {"return_code": rest.number(code >> 8)} if rest.is_structured else code,
        }  # fmt: skip

    def _partition(self, name: str) -> dict[str, Any]:
        rest, (limit, default, state) = self.rest, PARTITIONS[name]
        times = [parse_time(text) for text in (limit, default)]
        most, usual = (rest.number(None if time is None else time // 60) for time in times)
        if rest.is_structured:
            return {
                "name": name, "partition": {"state": [state.upper()]}, "maximums": {"time": most},
                "defaults": {"time": usual},
            }  # fmt: skip
        return {
            "name": name, "state": state.upper(), "max_time_limit": most, "default_time_limit": usual,
            "flags": ["default"] if name == "gpu" else [],
        }  # fmt: skip

    def _node(self, state: dict[str, Any], name: str) -> dict[str, Any]:
        is_used = any(job["NodeList"] == name and job["State"] == "RUNNING" for job in state["jobs"])
        word = "allocated" if is_used else "idle"
        number = state["machines"].index(name)
        return {
            "name": name, "state": self.rest.state(word.upper() if self.rest.is_structured else word),
            "cpus": 8, "alloc_cpus": 8 * is_used, "real_memory": 16000, "alloc_memory": 8192 * is_used,
            "gres": "gpu:l40s:2", "gres_used": f"gpu:l40s:{2 * is_used}", "partitions": list(PARTITIONS),
            "features": [f"rack{number % 2}"] if self.rest.is_structured else f"rack{number % 2}",
            "reason": "", **state.get("broken", {}).get(name, {}),
        }  # fmt: skip
