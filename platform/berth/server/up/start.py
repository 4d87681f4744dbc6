"""Start all of Berth's processes on one machine in order, and print Berth's address."""

import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, TextIO

from berth.db.embedded.cluster import DatabaseSetupError, EmbeddedCluster
from berth.home import home
from berth.parent_bound import parent_bound_command
from berth.server.up.address import bind_socket, socket_url, wait_until_ready
from berth.server.up.claim import lock_home_directory, write_status
from berth.server.up.errors import UNUSABLE_DATABASE, StartupError
from berth.server.up.processes import (
    database_child,
    environment,
    preloaded_process,
    program_children,
    web_process_count,
)
from berth.server.up.supervision.child import Child
from berth.server.up.supervision.fork_call import call_in_fork
from berth.server.up.supervision.forks import Forks
from berth.server.up.supervision.orphans import adopt_orphans
from berth.server.up.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from berth.server.up.isolation import LocalPodSettings

DEFAULT_HOST = "127.0.0.1"
HOSTS_VARIABLE = "BERTH_ALLOWED_HOSTS"
FORMER_SERVER_WAIT = 15.0
OTHER_CONNECTIONS, CONNECTIONS_PER_WEB_PROCESS = 68, 12  # connections to the embedded database


def up(*, host: str = DEFAULT_HOST, port: int | None = None, demo: bool = False) -> int:
    """Run until stopped. Return the exit code: 0 normally, or 1 if Berth could not start."""
    try:
        with lock_home_directory(home()) as lock, closing(bind_socket(host, port)) as listening:
            Startup(home(), listening, lock).run(demo)
    except (StartupError, DatabaseSetupError) as problem:
        print(f"Berth did not start. {problem}", file=sys.stderr)
        return 1
    return 0


@dataclass
class Startup:
    home: Path
    listening: socket
    lock: TextIO
    notice: str = ""
    web_processes: int = 1

    def run(self, demo: bool) -> None:
        self.web_processes = web_process_count()
        self._choose_local_settings(demo)
        (self.home / "logs").mkdir(mode=0o700, exist_ok=True)
        supervisor = Supervisor(lambda text: print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True))
        supervisor.listen()
        adopt_orphans()
        last_children: list[Child] = []
        try:
            if "DATABASE_URL" not in os.environ:
                last_children = [self._start_database(supervisor)]
            self._start_programs(supervisor, demo)
            if self._announce(supervisor):
                supervisor.run()
            print("\nStopping.", flush=True)
        finally:
            supervisor.stop(last_children)

    def _choose_local_settings(self, demo: bool) -> None:
        def choose() -> "LocalPodSettings":
            from berth.server.up.isolation import choose_local_settings

            return choose_local_settings(self.home, demo)

        variables, self.notice = call_in_fork(choose)
        os.environ.update(variables)

    def _start_database(self, supervisor: Supervisor) -> Child:
        connections = OTHER_CONNECTIONS + CONNECTIONS_PER_WEB_PROCESS * self.web_processes
        cluster = EmbeddedCluster(self.home / "postgres", {"max_connections": str(connections)})
        deadline = time.monotonic() + FORMER_SERVER_WAIT
        while (pid := cluster.server_pid()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if pid:
            raise StartupError(
                f"Another PostgreSQL server (process {pid}) is using {cluster.data}. Stop it first."
            )
        cluster.prepare()
        child = database_child(self.home, cluster)
        supervisor.start(child)
        assert isinstance(child.process, subprocess.Popen)
        try:
            cluster.wait(child.process)
        except DatabaseSetupError as error:
            raise StartupError(f"{error}\n{child.log_tail()}") from None
        os.environ["DATABASE_URL"] = cluster.url()
        return child

    def _start_programs(self, supervisor: Supervisor, demo: bool) -> None:
        """Load Berth while the tables are being created, then start its programs."""
        forks = Forks()
        preload = preloaded_process(self.home, forks, self.listening)
        supervisor.start(preload)
        self._prepare(demo)
        assert isinstance(preload.process, subprocess.Popen)
        try:
            forks.wait_until_loaded(preload.process)
        except StartupError as error:
            raise StartupError(f"{error}\n{preload.log_tail()}") from None
        for child in program_children(self.home, forks, self.listening, self.web_processes):
            supervisor.start(child)

    def _prepare(self, demo: bool) -> None:
        command = [sys.executable, "-m", "berth.server.up.prepare", *(["--demo"] if demo else [])]
        completed = subprocess.run(
            parent_bound_command(command),
            env=environment(self.home),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode == UNUSABLE_DATABASE:
            raise StartupError(completed.stderr.strip())
        if completed.returncode != 0:
            raise StartupError(f"The database could not be prepared.\n{completed.stderr.strip()[-2000:]}")

    def _announce(self, supervisor: Supervisor) -> bool:
        """Print the address once the server is ready. Return False if a stop was requested."""
        address = socket_url(self.listening)
        write_status(self.lock, address)
        is_stopped = False

        def should_continue() -> bool:
            nonlocal is_stopped
            is_stopped = supervisor.wait_for_stop_request(0)
            return not is_stopped

        if wait_until_ready(address, should_continue=should_continue):
            print(f"\n  Berth is at  {address}")
            password_file = self.home / "admin-password"
            if password_file.exists():
                print(f"  sign in as   admin / {password_file.read_text().strip()}   (from {password_file})")
            if not ip_address(self.listening.getsockname()[0]).is_loopback and not os.environ.get(
                HOSTS_VARIABLE
            ):
                print(f"  note         other host names are rejected until {HOSTS_VARIABLE} lists them")
            if self.notice:
                print(f"\n{self.notice}")
            print("  Press Ctrl-C to stop Berth and everything it runs.\n", flush=True)
        elif not is_stopped:
            raise StartupError(f"The web process is not responding. See the logs in {self.home / 'logs'}.")
        return not is_stopped
