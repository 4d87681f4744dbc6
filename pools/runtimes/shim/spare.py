"""Spare shim, which prepares an enclosure before it learns which pod it will run."""

from __future__ import annotations

import os
import select

from pools.runtimes.shim.enclosure.builder import Builder
from pools.runtimes.shim.enclosure.mounts import can_mount
from pools.runtimes.shim.enclosure.prepared import FILE, PreparedEnclosure
from pools.runtimes.shim.main import main
from pools.runtimes.shim.records import read_fields


def run_as_spare(assignment: int, root: str) -> None:
    """Prepare an enclosure, then run the pod whose directory and anchor arrive on `assignment`.

    Return if the pipe is closed, because the server has exited or no longer needs this shim.
    """
    prepared = _prepare(f"{root}/{FILE}")
    pod = os.read(assignment, select.PIPE_BUF)
    os.close(assignment)
    if pod:
        run_assigned_pod(pod, prepared)


def run_assigned_pod(pod: bytes, prepared: PreparedEnclosure | None = None) -> None:
    """Run a pod. `pod` contains the pod's directory and its anchor, the process whose exit stops the pod."""
    directory, anchor = (os.fsdecode(part) for part in pod.split(b"\0"))
    errors = os.open(f"{directory}/shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.close(errors)
    main(directory, anchor, prepared)


def _prepare(path: str) -> PreparedEnclosure | None:
    """Build the enclosure that the record describes.

    Return None if this fails, in which case the shim can still run a pod.
    """
    import ctypes

    try:
        record = read_fields(path) or []
        digest = dict(record).get("digest")
        if not digest or not can_mount(ctypes.CDLL(None, use_errno=True)):
            return None
        command = [value for key, value in record if key == "enclosure"]
        builder = Builder(command, os.open(os.devnull, os.O_WRONLY))
    except OSError:
        return None
    return PreparedEnclosure(digest, builder) if builder.wait() else None
