"""Start all processes of one machine in order, and print the address."""

import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from socket import socket
from typing import TextIO

from berth.db.embedded import DatabaseTrouble, Embedded
from berth.home import home
from berth.server.up.address import address_of, take, wait_until_it_answers
from berth.server.up.child import Child
from berth.server.up.claim import claimed, say
from berth.server.up.orphans import adopt_orphans
from berth.server.up.processes import database, environment, scheduler, services, tasks, web
from berth.server.up.supervisor import Supervisor
from berth.server.up.trouble import CannotStart
from berth.tied import tied

DEFAULT_HOST = "127.0.0.1"
NAMES = "BERTH_ALLOWED_HOSTS"
DEMO_GPUS = "8"
WAIT_FOR_A_FORMER_SERVER = 15.0
ROOT_WARNING = """\
  Warning: Berth runs as root, so the pods of local pools run as root as well. A user who may submit to a
  local pool controls this machine and can read everything Berth stores. Run Berth as a user of its own
  before you let in users whom you would not give root. See "Security" in docs/operations.md.
"""


def up(*, host: str = DEFAULT_HOST, port: int | None = None, demo: bool = False) -> int:
    """Run until stopped. Return the exit code: 0, or 1 if Berth could not start."""
    if demo:
        os.environ.setdefault("BERTH_DECLARED_GPUS", DEMO_GPUS)
    try:
        with claimed(home()) as lock, closing(take(host, port)) as listening:
            Start(home(), listening, lock).run(demo)
    except (CannotStart, DatabaseTrouble) as problem:
        print(f"Berth did not start. {problem}", file=sys.stderr)
        return 1
    return 0


@dataclass
class Start:
    home: Path
    listening: socket
    lock: TextIO

    def run(self, demo: bool) -> None:
        (self.home / "logs").mkdir(mode=0o700, exist_ok=True)
        supervisor = Supervisor(lambda text: print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True))
        supervisor.listen()
        adopt_orphans()
        last: list[Child] = []
        try:
            if "DATABASE_URL" not in os.environ:
                last = [self._start_database(supervisor)]
            starts, holds_back = os.pipe()
            supervisor.start(web(self.home, self.listening, starts))  # loads while the tables are created
            try:
                self._prepare(demo)
            finally:
                os.close(holds_back)
            port = self.listening.getsockname()[1]
            for child in (scheduler(self.home), tasks(self.home), services(self.home, port)):
                supervisor.start(child)
            if self._announce(supervisor):
                supervisor.run()
            print("\nStopping.", flush=True)
        finally:
            supervisor.stop(last)

    def _start_database(self, supervisor: Supervisor) -> Child:
        cluster = Embedded(self.home / "postgres")
        deadline = time.monotonic() + WAIT_FOR_A_FORMER_SERVER
        while (pid := cluster.holder()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if pid:
            raise CannotStart(f"Another PostgreSQL (process {pid}) has {cluster.data}: stop it first.")
        cluster.prepare()
        child = database(self.home, cluster)
        supervisor.start(child)
        assert child.process
        try:
            cluster.wait(child.process)
        except DatabaseTrouble as trouble:
            raise CannotStart(f"{trouble}\n{child.log_tail()}") from None
        os.environ["DATABASE_URL"] = cluster.url()
        return child

    def _prepare(self, demo: bool) -> None:
        command = [sys.executable, "-m", "berth.server.up.prepare", *(["--demo"] if demo else [])]
        done = subprocess.run(
            tied(command), env=environment(self.home), cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise CannotStart(f"The database could not be prepared.\n{done.stderr.strip()[-2000:]}")

    def _announce(self, supervisor: Supervisor) -> bool:
        """Return False if a stop was requested before the server was ready."""
        address = address_of(self.listening)
        say(self.lock, address)
        stop = False

        def goes_on() -> bool:
            nonlocal stop
            stop = supervisor.is_stop_requested(0)
            return not stop

        if wait_until_it_answers(address, goes_on=goes_on):
            print(f"\n  Berth is at  {address}")
            password_file = self.home / "admin-password"
            if password_file.exists():
                print(f"  sign in as   admin / {password_file.read_text().strip()}   (from {password_file})")
            if not ip_address(self.listening.getsockname()[0]).is_loopback and not os.environ.get(NAMES):
                print(f"  others       are refused until {NAMES} lists the names by which they call it")
            if os.geteuid() == 0:
                print(f"\n{ROOT_WARNING}")
            print("  Ctrl-C ends it and everything it runs.\n", flush=True)
        elif not stop:
            raise CannotStart(f"The web process does not answer; the logs are in {self.home / 'logs'}.")
        return not stop
