"""Test this machine's isolation by running a pod in each kind of enclosure."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pools.runtimes.enclosure.levels import PROBE_UID, VARIABLE, Isolation, IsolationLevel, IsolationPolicy
from pools.runtimes.enclosure.limits import add_enforceable_limits
from pools.runtimes.enclosure.machine import machine_view
from pools.runtimes.enclosure.pod import PodFiles, enclosure_fields
from pools.runtimes.enclosure.seccomp import find_filter_program
from pools.runtimes.shim.enclosure.namespaces import KILLED
from pools.runtimes.shim.records import Record, read_record, write_record

PROBE_SECONDS = 60.0
PROBE_ATTEMPTS = 3
# Errors caused by a temporary lack of resources. They say nothing about the machine's isolation.
TRANSIENT_ERRORS = frozenset(
    (
        errno.EAGAIN,
        errno.EINTR,
        errno.EIO,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
    )
)
STRAY_SECONDS = 600.0  # probe directories older than this were left behind by killed processes
PREFIX = ".probe-"
INSTALL = "Install it, for example with `apt-get install bubblewrap`, and restart the node's agent."
SHARED_USER = (
    "Pods share the user of the node's agent. Run the agent as root to give each project its own user."
)
# The probe must run as the expected user, see only its own processes, and find the system read-only.
CHECK = """
[ "$(id -u)" = "$1" ] || { echo "runs as user $(id -u)"; exit 1; }
[ "$(readlink /proc/self/ns/pid)" != "$2" ] || { echo "sees the processes of the machine"; exit 1; }
touch "$3/file" || exit 1
! touch /usr/.berth-probe 2> /dev/null || { echo "can write to the system"; exit 1; }
"""


@dataclass(frozen=True)
class ProbeResult:
    """Strongest enclosure that this machine can build.

    `program` is the path of bubblewrap. `call_filter` is the BPF program that filters system calls, or empty.
    """

    isolation: Isolation
    program: str = ""
    blocks_nesting: bool = True
    call_filter: bytes = b""


class ProbeInterrupted(OSError):
    """Raised if the machine prevented a test, for example by killing its processes.

    Its isolation is then unknown, so pods must not start.
    """


@dataclass(frozen=True)
class Shim:
    """Command and environment of the shim. The pod's directory is the last argument."""

    command: tuple[str, ...]
    env: Mapping[str, str]


def probe(root: Path, policy: IsolationPolicy, shim: Shim) -> ProbeResult:
    """Return the strongest isolation that works on this machine, and the enforceable limits.

    Probe pods run below `root`. Raises ProbeInterrupted.
    """
    probed = _probe_levels(root, policy, shim)
    return replace(probed, isolation=add_enforceable_limits(probed.isolation))


def _probe_levels(root: Path, policy: IsolationPolicy, shim: Shim) -> ProbeResult:
    program = shutil.which("bwrap")
    reasons = [f"{VARIABLE} is off."] if policy is IsolationPolicy.OFF else []
    reasons += [f"bubblewrap is not installed. {INSTALL}"] if program is None else []
    if program is None or policy is IsolationPolicy.OFF:
        return ProbeResult(Isolation(IsolationLevel.NONE, policy, " ".join(reasons)))
    program = os.path.realpath(program)
    call_filter, unfiltered = find_filter_program()
    obstacles: list[str] = []
    for level, blocks_nesting in _candidate_levels():
        obstacle = _try_level(root, level, program, blocks_nesting, call_filter, shim)
        if not obstacle:
            shortfall = _describe_shortfall(level, obstacles)
            isolation = Isolation(
                level, policy, shortfall, seccomp=bool(call_filter), seccomp_obstacle=unfiltered
            )
            return ProbeResult(isolation, program, blocks_nesting, call_filter)
        obstacles.append(obstacle)
    text = f"bubblewrap cannot isolate pods on this machine: {obstacles[-1]}."
    return ProbeResult(Isolation(IsolationLevel.NONE, policy, text))


def _candidate_levels() -> list[tuple[IsolationLevel, bool]]:
    namespaces = [(IsolationLevel.NAMESPACES, True), (IsolationLevel.NAMESPACES, False)]
    return [(IsolationLevel.USERS, True), *namespaces] if os.geteuid() == 0 else namespaces


def _describe_shortfall(level: IsolationLevel, obstacles: list[str]) -> str:
    if level is IsolationLevel.USERS:
        return ""
    if os.geteuid() == 0:
        return f"Pods share the user root, without its capabilities, because {obstacles[0]}."
    return SHARED_USER


def _try_level(
    root: Path, level: IsolationLevel, program: str, blocks_nesting: bool, call_filter: bytes, shim: Shim
) -> str:
    """Run a probe pod at this level. Return why it failed, or "". Raises ProbeInterrupted."""
    uid = PROBE_UID if level is IsolationLevel.USERS else 0

    def run_pod() -> str:
        with probe_directory(root) as directory:
            files = PodFiles(directory, directory / "work", directory / "workspace")
            for path in (files.work, files.workspace, directory / "wakes"):
                path.mkdir(mode=0o700)
            try:
                fields = enclosure_fields(
                    files, machine_view([]), level, uid, {}, (), program=program,
                    blocks_nesting=blocks_nesting, call_filter=call_filter,
                )  # fmt: skip
            except OSError as error:
                if uid and error.errno == errno.EINVAL:
                    return f"the machine does not map user ID {uid}"
                raise
            write_record(f"{directory}/order", [*probe_pod_spec(files, uid), *fields])
            return run_probe_pod(directory, shim)

    return retry_until_complete(run_pod)


def run_probe_pod(directory: Path, shim: Shim) -> str:
    """Run the probe pod in the directory. Return why it failed, or "". Raises ProbeInterrupted."""
    try:
        completed = subprocess.run(
            [*shim.command, str(directory), ""], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=PROBE_SECONDS, check=False, cwd="/", env=shim.env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProbeInterrupted(f"the probe did not finish within {PROBE_SECONDS:g} s") from None
    if completed.returncode < 0:
        raise ProbeInterrupted(f"the probe's shim was killed by signal {-completed.returncode}")
    if completed.returncode:
        lines = completed.stderr.decode(errors="replace").strip().splitlines()
        return f"the probe's shim failed: {lines[-1] if lines else f'status {completed.returncode}'}"
    return _read_obstacle(directory)


def retry_until_complete(attempt: Callable[[], str], attempts: int = PROBE_ATTEMPTS) -> str:
    """Repeat a test until it is not interrupted, and return its result.

    If the test raises a permanent OSError, return the error's text. Raises ProbeInterrupted after `attempts`
    interruptions.
    """
    try:
        return attempt()
    except OSError as error:
        if not isinstance(error, ProbeInterrupted) and error.errno not in TRANSIENT_ERRORS:
            return str(error)
        if attempts == 1:
            reason = f"the isolation of this machine could not be tested: {error}"
            raise ProbeInterrupted(reason) from error
    return retry_until_complete(attempt, attempts - 1)


@contextmanager
def probe_directory(root: Path) -> Iterator[Path]:
    """Delete directories left behind by killed probes, and yield a temporary directory for a probe pod."""
    for stray in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - stray.stat().st_mtime > STRAY_SECONDS:
                shutil.rmtree(stray)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=root) as place:
        yield Path(place)


def probe_pod_spec(files: PodFiles, uid: int) -> Record:
    """Return the spec of a probe pod, which checks its own enclosure."""
    facts = (str(uid or os.geteuid()), str(Path("/proc/self/ns/pid").readlink()), str(files.workspace))
    arguments = ("/bin/sh", "-c", CHECK, "check", *facts)
    return [
        ("name", "probe"), ("grace", "0"), ("working_dir", str(files.work)), ("log_limit", "65536"),
        ("wake_dir", str(files.directory / "wakes")), ("env", "PATH=/usr/bin:/bin"),
        *(("arg", argument) for argument in arguments),
    ]  # fmt: skip


def _read_obstacle(directory: Path) -> str:
    """Return why the probe pod failed, or "". Raises ProbeInterrupted."""
    end = read_record(str(directory / "exit"))
    if end is None:
        raise ProbeInterrupted("the probe ended without reporting an exit code")
    if end.get("exit_code") == "0":
        return ""
    if "signal" in end or end["message"].endswith(KILLED):
        raise ProbeInterrupted(end["message"] or f"the probe was killed by signal {end['signal']}")
    log = directory / "log"
    output = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return end["message"] or (f"a pod {output[-1]}" if output else "the probe failed")
