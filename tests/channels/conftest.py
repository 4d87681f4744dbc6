"""Fixtures for channel tests: a web server with a running pod of real processes."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from berth.cli.main import app
from berth.client import Client
from berth.client.config import Settings
from berth.core.clock import SystemClock
from berth.server.asgi import berth
from berth.server.wiring import Wiring
from pools.runtimes.base import PodSpec
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.processes import process_ids
from projects.connections.watch import WATCHER
from projects.models import Audit, Pod
from projects.services.people import tokens
from tests import factories as make
from tests.cast import Cast, Person, make_cast
from tests.contracts.pods import ended, order, poll_until, running
from tests.port_proxy.pod import served

if TYPE_CHECKING:
    from tests.channels.ssh_user import SshUser

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0


@dataclass
class Site:
    """A web server with the pod `worker-0` of dave's workload `train` in project vision."""

    cast: Cast
    pod: Pod
    runtime: Any
    address: str
    programs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def workload_id(self) -> str:
        return str(self.pod.workload_id)

    def secret(self, person: Person, *scopes: str) -> str:
        _, secret = tokens.issue(
            actor=person,
            name=f"token {time.monotonic()}",
            scopes=scopes or ("read", "write"),
            expires_at=None,
        )
        return secret

    def client(self, person: Person, *scopes: str) -> Client:
        return Client(settings=Settings(self.address, self.secret(person, *scopes)))

    def settings(self, person: Person) -> Settings:
        return Settings(self.address, self.secret(person))

    def environment(self) -> dict[str, str]:
        """Return the environment variables of a user's programs, with dave's token."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("BERTH_")},
            "BERTH_URL": self.address, "BERTH_TOKEN": self.secret(self.cast.dave), "TERM": "xterm",
            "LINES": "24", "COLUMNS": "80",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
        }  # fmt: skip

    def start(
        self, *arguments: str, environment: dict[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """Start a `berth` command as a process, by default as dave.

        The default SIGINT handler is restored because shells make background jobs ignore SIGINT.
        """
        env = environment or self.environment()
        command = [sys.executable, "-m", "berth.cli.main", *arguments]
        options["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        program: subprocess.Popen[bytes] = subprocess.Popen(command, env=env, **options)  # type: ignore[call-overload]
        self.programs.append(program)
        return program

    def run(
        self, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a `berth` command in this process, by default as dave. This takes only milliseconds."""
        result = CliRunner().invoke(app, list(arguments), env=environment or self.environment())
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

    def processes(self, mark: str) -> list[int]:
        return [pid for pid in process_ids() if mark in _command_line(pid)]

    def audit(self, kind: str = "_shell") -> list[tuple[str, str, object]]:
        rows = Audit.objects.filter(action__endswith=kind).order_by("id")
        return [(row.actor, row.action, row.after) for row in rows]


class Screen:
    """A terminal in which a test types into a program and reads its output."""

    def __init__(self, site: Site, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        files = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.program = self._start(site, *arguments, **files, start_new_session=True)
        os.close(slave)
        self.shown = b""

    def _start(self, site: Site, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        return site.start(*arguments, **options)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.program.send_signal(signal.SIGWINCH)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.shown:
            assert time.monotonic() < deadline, self.shown.decode(errors="replace")
            if select.select([self._master], [], [], 1.0)[0]:
                self.shown += os.read(self._master, 65536)

    def close(self) -> None:
        os.close(self._master)


@contextmanager
def running_site(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, make_order: Callable[[str], PodSpec]
) -> Iterator[Site]:
    """Run a server with one running pod on `runtime`. `make_order` converts the pod's ID to its spec."""
    wiring = Wiring(SystemClock(), {}, {"fake": runtime})
    monkeypatch.setattr("scheduler.api.logs.pod_log.load_wiring", lambda: wiring)
    monkeypatch.setattr("projects.connections.watch.LINGER_SECONDS", 0.0)
    monkeypatch.setattr("projects.connections.watch.CHECK_SECONDS", 0.05)
    cast = make_cast()
    work = make.workload(
        cast.vision, "train", by=cast.dave.user, phase="running", run=1, started_at=make.ago(hours=1)
    )
    pod = make.place(work, make.node(cast.pool), [0])
    pod_id = str(pod.pk)
    runtime.start(make_order(pod_id))
    running(runtime, pod_id)
    with served(berth) as port:
        site = Site(cast, pod, runtime, f"http://127.0.0.1:{port}")
        yield site
        for program in site.programs:
            program.kill()
            program.wait()
        runtime.stop(pod_id, 0)
        ended(runtime, pod_id)
        poll_until(lambda: not WATCHER.count(cast.dave.user.pk))
    poll_until(lambda: WATCHER._thread is None)  # the thread reads the database
    poll_until(lambda: not site.processes(pod_id))


@pytest.fixture
def site(transactional_db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    runtime = LocalRuntime(tmp_path / "run", anchor="")

    def make_order(pod_id: str) -> PodSpec:
        return order(pod_id, "sh", "-c", "sleep 3600", secret_env={"TOKEN": "hush"})

    with running_site(runtime, monkeypatch, make_order) as site:
        yield site


@pytest.fixture
def user(site: Site, tmp_path: Path) -> "SshUser":
    from tests.channels.ssh_user import SshUser

    user = SshUser(site, tmp_path / "home")
    user.include_hosts()
    return user


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
