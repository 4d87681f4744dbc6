"""Install environments on this machine with bootstrap scripts.

Nodes with the same digest share an environment.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools.environments.code import write_code_file
from pools.environments.progress import Progress, add_script_failure, parse_progress
from pools.runtimes.shim.processes import start_time, stat_fields
from pools.runtimes.shim.records import read_record, write_record

# The script's output and exit code go to files, so that no process has to wait for the script.
RUN_SCRIPT = (
    'cd / && /bin/sh "$0/script" > "$0/output" 2>&1; echo $? > "$0/exit.new"; mv "$0/exit.new" "$0/exit"'
)
_INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)


@dataclass(frozen=True)
class Recipe:
    """Script that creates an environment. The secrets that the script needs are never written to a file."""

    digest: str
    script: str
    secrets: Mapping[str, str]


@dataclass(frozen=True)
class InstallStatus:
    """Status of a node's installation: its progress, and the reason for a failure, if any."""

    progress: Progress
    ready: bool = False
    failure: str = ""


class LocalEnvironments:
    """Environments on this machine, stored below `root` by digest.

    The files below `boots/NAME` record the installation for node NAME.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._children: list[subprocess.Popen[bytes]] = []

    def begin_installation(self, name: str, recipe: Recipe) -> None:
        """Start a node's installation unless it is already running or has ended."""
        home = self._boot_directory(name)
        if (home / "exit").exists() or self._is_running(home):
            return
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True, mode=0o700)
        (home / "script").write_text(recipe.script, encoding="utf-8")
        (home / "digest").write_text(recipe.digest)
        (home / "phases").touch()
        child = subprocess.Popen(
            ["/bin/sh", "-c", RUN_SCRIPT, str(home)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/", env=self._script_env(home, recipe), start_new_session=True,
        )  # fmt: skip
        self._children.append(child)
        write_record(str(home / "process"), [("pid", str(child.pid)), ("start", start_time(child.pid))])

    def get_status(self, name: str, secrets: Mapping[str, str]) -> InstallStatus | None:
        """Return the installation's progress, or None if no installation is running or has ended."""
        self._reap()
        home = self._boot_directory(name)
        # Check whether the script is running before reading its exit code, because it may end in between.
        is_running = self._is_running(home)
        code = _read_text(home / "exit").strip()
        progress = parse_progress(_read_text(home / "phases").splitlines(), secrets.values())
        if code:
            if code == "0" and progress.ready:
                return InstallStatus(progress, ready=True)
            progress = (
                progress
                if progress.failed_phase
                else self._with_script_failure(progress, home, code, secrets)
            )
            return InstallStatus(progress, failure=progress.failure_message)
        return InstallStatus(progress) if is_running else None

    def end(self, name: str) -> None:
        """Stop a node's installation and delete its record. Other nodes are not affected."""
        home = self._boot_directory(name)
        record = read_record(str(home / "process"))
        if record is not None and self._is_running(home):
            with suppress(ProcessLookupError):
                os.killpg(int(record["pid"]), signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)

    def delete_unused_environments(self, keep: frozenset[str]) -> list[str]:
        """Delete environments that are neither in `keep` nor being installed. Return the deleted digests."""
        installing = {_read_text(path) for path in self.root.glob("boots/*/digest")}
        deleted = []
        for path in sorted(self.root.glob("[0-9a-f]" * 64)):
            if path.is_dir() and path.name not in keep | installing and self._delete_unless_locked(path):
                deleted.append(path.name)
        return deleted

    def _delete_unless_locked(self, path: Path) -> bool:
        """Delete an environment unless it is being installed. Return whether it was deleted."""
        with Path(f"{path}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            (path / ".ready").unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
        return True

    def _script_env(self, home: Path, recipe: Recipe) -> dict[str, str]:
        env = {
            name: value
            for name, value in os.environ.items()
            if name in _INHERITED_VARIABLES or name[:4] == "PIP_"
        }
        return {
            **env,
            **recipe.secrets,
            "BERTH_ENVIRONMENTS": str(self.root),
            "BERTH_PHASES": str(home / "phases"),
            "BERTH_PYTHON": sys.executable,
            "BERTH_CODE": str(write_code_file(self.root)),
            "BERTH_APT": "no",
        }

    def _with_script_failure(
        self, progress: Progress, home: Path, code: str, secrets: Mapping[str, str]
    ) -> Progress:
        """Add a failure outside the script's own phases, such as a full disk, to the progress."""
        return add_script_failure(
            progress, f"{_read_text(home / 'output')}\nexit code {code}", secrets.values()
        )

    def _is_running(self, home: Path) -> bool:
        record = read_record(str(home / "process"))
        fields = stat_fields(int(record["pid"])) if record else None
        if record is None or fields is None:
            return False
        return fields[19] == record["start"] and fields[0] != "Z"

    def _boot_directory(self, name: str) -> Path:
        return self.root / "boots" / name

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
