"""Install and uninstall the agent as a service on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator

from .ec2 import get_metadata
from .jobs import Job
from .managers import ENVIRONMENT_FILE, CannotInstall, Supervisor, Systemd, find_manager
from .run import join_pool
from .scripts import PREPARE, StartScript
from .server import MachineRejected, Server
from .state import AGENT_FILE, STATE, load_secret, read_file, write_private_file

DELETE_SECONDS = 20.0
DELETE_PAUSE_SECONDS = 0.1
# Environment variables that the service inherits from `install`, in addition to those named BERTH_*.
_INHERITED = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL", "UV_PYTHON_INSTALL_MIRROR",
)  # fmt: skip


def install(
    server: Server, pool: str, *, join_later: bool = False, rejoin: bool = False, detached: bool = False
) -> str:
    """Join the pool, then install and start the agent's service. Return a message for the user.

    If `join_later` is set, the service joins when it starts, with the token in its environment file. If
    `rejoin` is set, an installed agent joins again without stopping its pods. If `detached` is set, the
    machine does not have to run systemd. Raises CannotInstall, or MachineRejected if the server rejects the
    machine.
    """
    manager = find_manager(detached=detached)
    with _lock():
        if rejoin:
            _rejoin(server, pool, manager)
        elif not load_secret() and not join_later:
            _join(server, pool)
        _store_agent(keep_token=join_later)
        manager.start()
    return manager.installed


def uninstall(server: Server, *, force: bool = False) -> str:
    """Stop the node, leave the pool, and delete the agent.

    Return a message about the remaining steps, or "" if there are none. Raises CannotInstall if the machine
    is in use, or if another process keeps writing files.
    """
    manager = find_manager(detached=True)
    start = StartScript()
    if start.answer and not force:
        node = start.answer["node"]
        raise CannotInstall(
            "This machine serves as node %s. Drain it first (`berth machine remove`), or stop its pods with"
            " --force." % node
        )
    with _lock():
        manager.remove()
        Job(PREPARE).kill()
        StartScript().end()  # read again: the agent may have started another node
        note = _leave(server)
        _delete_files()
    return note


def environment_file(*, keep_token: bool) -> str:
    """Return this process's settings as a systemd EnvironmentFile."""
    lines = []
    for name in sorted(os.environ):
        is_setting = name.startswith("BERTH_") or name in _INHERITED
        if is_setting and (keep_token or name != "BERTH_JOIN_TOKEN"):
            lines.append("%s=%s\n" % (name, _quote_value(name, os.environ[name])))
    return "".join(lines)


def load_environment_file() -> None:
    """Load the installed service's settings as environment variables. Existing variables take precedence."""
    for assignment in shlex.split(read_file(ENVIRONMENT_FILE)):
        name, _, value = assignment.partition("=")
        os.environ.setdefault(name, value)


def _rejoin(server: Server, pool: str, manager: Systemd | Supervisor) -> None:
    """Stop the installed agent before joining again.

    Joining revokes the agent's secret, and a running agent would then stop its pods.
    """
    manager.stop()
    try:
        _join(server, pool)
    except (CannotInstall, MachineRejected):
        if load_secret() and os.path.exists(AGENT_FILE):
            manager.start()
        raise


def _join(server: Server, pool: str) -> None:
    try:
        join_pool(server, pool, get_metadata("instance-id"))
    except OSError as error:
        raise CannotInstall("The machine could not join pool %s: %s" % (pool, error)) from None


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Prevent concurrent installations. Raises CannotInstall if another installation is running."""
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    with open(os.path.join(STATE, "lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotInstall(
                "Another installation of the agent is in progress. Wait until it has finished."
            ) from None
        yield


def _store_agent(*, keep_token: bool) -> None:
    write_private_file(ENVIRONMENT_FILE, environment_file(keep_token=keep_token))
    with open(sys.argv[0], "rb") as file:
        write_private_file(AGENT_FILE, file.read())


def _leave(server: Server) -> str:
    secret = load_secret()
    if secret and not server.url:
        return "The server's URL is not stored here. Remove the machine with `berth machine remove`."
    if secret:
        try:
            server.send("machines/leave", {}, secret)
        except MachineRejected:
            pass  # the machine has already been removed from the server
        except OSError as error:
            return "The server did not respond (%s). Remove the machine with `berth machine remove`." % error
    return ""


def _delete_files() -> None:
    """Delete the state directory, and then the agent, so that an interrupted uninstallation can be repeated.

    Raises CannotInstall if processes keep writing to the directory.
    """
    deadline = time.monotonic() + DELETE_SECONDS
    while not _try_delete_files():
        if time.monotonic() > deadline:
            raise CannotInstall(
                "%s could not be deleted completely. End the processes that use it, and repeat the command."
                % STATE
            )
        time.sleep(DELETE_PAUSE_SECONDS)


def _try_delete_files() -> bool:
    """Delete as many files as possible. Return whether all were deleted."""
    others = {os.path.join(STATE, name) for name in os.listdir(STATE)} - {AGENT_FILE, ENVIRONMENT_FILE}
    for path in others:
        _delete(path)
    if not any(map(os.path.lexists, others)):
        _delete(STATE)
    return not os.path.lexists(STATE)


def _delete(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _quote_value(name: str, value: str) -> str:
    if not value.isprintable():
        raise CannotInstall("The variable %s contains control characters. Remove them." % name)
    return shlex.quote(value)
