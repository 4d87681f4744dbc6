"""Tests for `berth up`: start all processes, restart dead ones, and stop processes and pods."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from berth.db.embedded.cluster import EmbeddedCluster, run_server
from tests.harness import prepared
from tests.journeys.command import Terminal
from tests.journeys.installation import Installation, Visitor, until
from tests.support.open_files import open_files

# Saves its work on SIGTERM, as a trainer does.
SAVE_ON_SIGTERM = "trap 'echo saved; touch saved; exit 0' TERM; echo working; while :; do sleep 0.1; done"
TASK_PROCESSES = 5  # the supervisor, guard, worker, queue reader and result writer
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def berth(shared_berth: Installation) -> Installation:
    """Return the installation that the other journeys have used. Its data persists between starts."""
    return shared_berth


@pytest.fixture(scope="module")
def _pods(dave_on_shared_berth: Terminal) -> None:
    """Start two pods of a workload that runs until it is stopped, even if Berth restarts."""
    dave_on_shared_berth.berth(
        "submit", "-n", "work", "-p", "vision", "--replicas", "2", "--gpu", "1", "--cpu", "0.1",
        "--memory", "64", "--grace", "20s", "--", "sh", "-c", SAVE_ON_SIGTERM,
    )  # fmt: skip


def pods(berth: Installation) -> list[int]:
    return [pid for pid, line in berth.processes().items() if "trap 'echo saved" in line]


def password(home: Path) -> str:
    return (home / "admin-password").read_text().strip()


def test_admin_can_sign_in_at_the_address_printed_by_the_first_start(berth: Installation) -> None:
    address = berth.running()
    file = berth.home / "admin-password"
    assert password(berth.home) in berth.output
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert oct((berth.home / "secret_key").stat().st_mode & 0o777) == "0o600"
    status, page = Visitor(address).sign_in("admin", password(berth.home))
    assert status == 200
    assert "/admin/logout/" in page
    assert ("Warning: " in berth.output) == (shutil.which("bwrap") is None), "pods are isolated"


def test_metrics_require_the_token_in_the_home_directory(berth: Installation) -> None:
    address = berth.running()
    token = (berth.home / "metrics_token").read_text().strip()
    assert oct((berth.home / "metrics_token").stat().st_mode & 0o777) == "0o600"
    assert Visitor(address).get("/metrics")[0] == 401
    request = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        assert b"berth_build_info" in answer.read()


def test_no_process_connects_as_a_database_superuser(berth: Installation) -> None:
    berth.running()
    cluster = EmbeddedCluster(berth.home / "postgres")
    connected = (
        "SELECT coalesce(usename, ''), count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND usesysid IS NOT NULL GROUP BY 1"
    )
    with psycopg.connect(cluster.url(), autocommit=True) as connection:

        def connections() -> dict[str, int]:
            return dict(connection.execute(connected).fetchall())

        until(lambda: connections().get("berth_app", 0) >= 3)
        assert set(connections()) == {"berth_app"}
        assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = user").fetchone() == (False,)
    bare = cluster.url().replace(cluster.password_file.read_text().strip(), "guess")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(bare)


@pytest.mark.parametrize(
    "name",
    [
        "web",
        pytest.param("web-2", marks=pytest.mark.heavy),
        pytest.param("database", marks=pytest.mark.heavy),
        pytest.param("scheduler", marks=pytest.mark.heavy),  # test_git_code.py kills it too
        pytest.param("preload", marks=pytest.mark.heavy),
        pytest.param("tasks", marks=pytest.mark.heavy),  # the next test kills it too
        pytest.param("services", marks=pytest.mark.heavy),
    ],
)
def test_killed_process_is_restarted_and_users_can_sign_in(berth: Installation, name: str) -> None:
    address = berth.running()
    victim = until(lambda: berth.children().get(name))
    os.kill(victim, signal.SIGKILL)
    until(lambda: berth.children().get(name) not in (None, victim))
    until(lambda: Visitor(address).sign_in("admin", password(berth.home))[0] == 200)
    others = {pid for child, pid in berth.children().items() if child != name}
    assert victim not in berth.processes()
    assert others


def test_both_web_processes_accept_connections(berth: Installation) -> None:
    berth.running()
    until(lambda: {"web", "web-2"} <= berth.children().keys())
    webs = [pid for name, pid in berth.children().items() if name in ("web", "web-2")]
    before = [open_sockets(pid) for pid in webs]
    with ExitStack() as stack:

        def connect() -> bool:
            """Open ten connections. A less busy process may accept more of them."""
            for _ in range(10):
                stack.enter_context(socket.create_connection(("127.0.0.1", berth.port), timeout=120))
            return all(open_sockets(pid) > earlier for pid, earlier in zip(webs, before, strict=True))

        until(connect)


def open_sockets(pid: int) -> int:
    return sum(file.startswith("socket:") for file in open_files(pid))


def test_invalid_number_of_web_processes_prevents_startup(tmp_path: Path) -> None:
    rejected = subprocess.run(
        [sys.executable, "-m", "berth.server.up"], cwd="/", capture_output=True, text=True, check=False,
        env={**Installation(tmp_path / "home").env(), "BERTH_WEB_PROCESSES": "many"},
    )  # fmt: skip
    assert rejected.returncode == 1
    assert (
        "BERTH_WEB_PROCESSES is 'many'. Set it to a number of web processes from 1 to 32." in rejected.stderr
    )


@pytest.mark.heavy
def test_database_of_another_development_version_prevents_startup(prepared_home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="berth-journey-") as place:
        home = Path(place) / "home"
        prepared.copy_directory(prepared_home, home)
        cluster = EmbeddedCluster(home / "postgres", prepared.FAST_SETTINGS)
        with run_server(cluster, log=Path(place) / "log"), psycopg.connect(cluster.url()) as database:
            database.execute("ALTER TABLE projects_workload DROP COLUMN peer_failures")
        rejected = subprocess.run(
            [sys.executable, "-m", "berth.server.up"],
            env=Installation(home).env(), cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert rejected.returncode == 1
    assert rejected.stderr == (
        f"Berth did not start. The database of this home ({home}) was created by another development version "
        "of Berth, and this version cannot use it. Set BERTH_HOME to a new directory, or delete all data "
        "with `make demo-reset`, or continue with that version. Differences: table projects_workload has no "
        "column peer_failures.\n"
    )


def test_processes_share_the_memory_of_preloaded_modules(berth: Installation) -> None:
    berth.running()
    until(lambda: len(berth.children()) == len(berth.names))
    loaded = [pid for pid, line in berth.processes().items() if "berth: " in line]
    resident, proportional = (sum(memory(pid, name) for pid in loaded) for name in ("Rss", "Pss"))
    assert proportional < resident / 2


def memory(pid: int, name: str) -> int:
    """Return the resident or proportional memory of a process in KiB, or 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def test_killed_task_queue_leaves_no_orphaned_process(berth: Installation) -> None:
    berth.running()
    queue = until(lambda: berth.children().get("tasks"))

    def members() -> set[int]:
        return {pid for pid, line in berth.processes().items() if "berth: tasks" in line}

    family = until(lambda: pids if len(pids := members()) >= TASK_PROCESSES else None)
    os.kill(queue, signal.SIGKILL)
    until(lambda: not family & members())


def test_second_start_in_a_home_directory_reports_the_running_process(berth: Installation) -> None:
    address = berth.running()
    second = subprocess.run(
        [sys.executable, "-m", "berth.server.up"],
        env=berth.env(),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert address in second.stderr
    assert Visitor(address).get("/admin/login/")[0] == 200


@pytest.mark.heavy
@pytest.mark.usefixtures("_pods")
def test_killed_supervisor_leaves_no_processes_and_loses_no_data(berth: Installation) -> None:
    # A request sent during the next start waits until Berth is ready.
    berth.running()
    until(lambda: len(pods(berth)) == 2)
    before = password(berth.home)
    berth.end(signal.SIGKILL)
    until(lambda: not berth.processes())
    with ThreadPoolExecutor() as pool:
        early = pool.submit(send_early, berth.port)
        address = berth.start()
        assert early.result(timeout=60).startswith(b"HTTP/1.1 200")
    assert password(berth.home) == before
    assert Visitor(address).sign_in("admin", before)[0] == 200


def send_early(port: int) -> bytes:
    """Send a request as soon as the port is open. Return the first bytes of the response."""

    def connected() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            return None

    with until(connected) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(100)


@pytest.mark.usefixtures("_pods")
def test_ctrl_c_stops_every_process_and_lets_pods_checkpoint(berth: Installation) -> None:
    berth.running()
    until(lambda: len(pods(berth)) == 2)  # the workload has restarted with Berth
    # An earlier test has killed some of these processes.
    until(lambda: {"database", "web", "tasks"} <= berth.children().keys())
    assert berth.end(signal.SIGINT) == 0
    until(lambda: not berth.processes())
    assert list(berth.home.rglob("saved"))


def test_error_names_the_port_in_use(berth: Installation) -> None:
    if berth.is_running():
        berth.end()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        rejected = subprocess.run(
            [sys.executable, "-m", "berth.server.up", "--port", str(port)],
            env=berth.env(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    assert rejected.returncode == 1
    assert berth.processes() == {}
    assert f"127.0.0.1:{port} cannot be used" in rejected.stderr
