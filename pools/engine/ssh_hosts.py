"""Decide which task is due on an SSH host."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SILENT_AFTER = timedelta(seconds=60)  # short enough to repair a host long before its node counts as lost
RETRY_FIRST = timedelta(seconds=15)
RETRY_MAX = timedelta(minutes=10)


class HostTask(StrEnum):
    SCAN = "scan"  # read the host key, so that an admin can accept it
    INSTALL = "install"  # check the host, then install or restart the agent
    UNINSTALL = "uninstall"
    FORGET = "forget"  # delete the row of a host on which nothing was installed


class HostState(StrEnum):
    UNVERIFIED = "unverified"  # no admin has accepted the host key
    PENDING = "pending"  # Berth has not examined the host yet
    INSTALLING = "installing"
    JOINED = "joined"
    SILENT = "silent"  # the agent has stopped reporting
    FAILING = "failing"  # the last connection failed and will be retried
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class Host:
    """State of an SSH host and its agent.

    `is_touched` means that the host may contain files of the agent, and `is_current` that the current
    settings are installed. `silent_for` is the time since the last report, or None if the host has not
    joined.
    """

    is_pinned: bool = True
    is_touched: bool = False
    is_current: bool = False
    is_removed: bool = False
    silent_for: timedelta | None = None
    is_busy: bool = False
    failures: int = 0
    retry_at: datetime | None = None

    @property
    def is_silent(self) -> bool:
        return self.silent_for is not None and self.silent_for >= SILENT_AFTER


def next_task(host: Host, now: datetime, *, watched_for: timedelta) -> HostTask | None:
    """Return the task that is due, or None.

    `watched_for` is how long this process has been receiving reports. Silence before that does not count,
    because agents cannot report while Berth is stopped.
    """
    if host.is_busy or (host.retry_at is not None and now < host.retry_at <= now + RETRY_MAX):
        return None
    if host.is_removed:
        return _next_removal_task(host)
    if not host.is_pinned:
        return HostTask.SCAN
    if host.silent_for is None or not host.is_current:
        return HostTask.INSTALL
    return HostTask.INSTALL if host.is_silent and watched_for >= SILENT_AFTER else None


def _next_removal_task(host: Host) -> HostTask | None:
    if not host.is_touched:
        return HostTask.FORGET
    return HostTask.UNINSTALL if host.silent_for is None else None  # wait while the host's node is draining


def retry_delay(failures: int) -> timedelta:
    """Return how long to wait before the next attempt, given the number of consecutive failures."""
    doublings = min(max(failures - 1, 0), 10)
    return min(RETRY_FIRST * (1 << doublings), RETRY_MAX)


def host_state(host: Host) -> HostState:
    if host.is_removed:
        return HostState.REMOVING
    if not host.is_pinned:
        return HostState.UNVERIFIED
    if host.is_busy:
        return HostState.INSTALLING
    if host.failures:
        return HostState.FAILING
    if host.silent_for is None:
        return HostState.PENDING
    return HostState.SILENT if host.is_silent else HostState.JOINED
