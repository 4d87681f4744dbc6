"""Checks for running pods: isolation, limits, images and GPUs."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from berth.server.doctor.check import Check, CheckStatus, split_remedy
from pools.runtimes.device_usage import DeviceProbe
from pools.runtimes.enclosure.devices import DECLARED_VARIABLE, amd_render_nodes, nvidia_gpus, simulates_gpus
from pools.runtimes.enclosure.levels import Isolation, IsolationLevel, IsolationPolicy
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.limits.cgroups import CPU, MEMORY, PROCESSES

HERE = "this machine"
VERSION_SECONDS = 10.0
IMAGE_PROGRAMS = ("podman", "runc", "crun", "catatonit", "conmon")
CONTROLLED = (MEMORY, CPU, PROCESSES)


def node_checks() -> Iterator[Check]:
    try:
        isolation = _try_isolation()
    except (ValueError, OSError) as error:
        yield Check("Isolation", CheckStatus.MISSING, str(error))
        return
    yield _check_isolation(isolation)
    yield _check_limits(isolation)
    yield _check_system_calls(isolation)
    yield _check_images(isolation)
    yield _check_gpus()


def _try_isolation() -> Isolation:
    """Return the isolation that pods would have on this machine.

    Raises ValueError for an invalid environment variable, and OSError if the test was interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="berth-doctor-") as place:
        return LocalRuntime(Path(place) / "run", anchor="").get_isolation([HERE])[HERE]


def _check_isolation(isolation: Isolation) -> Check:
    finding, remedy = split_remedy(isolation.obstacle) if isolation.obstacle else ("", "")
    finding = f"Level {isolation.level}. {finding}".strip()
    if isolation.level is IsolationLevel.USERS:
        return Check("Isolation", CheckStatus.OK, finding)
    if isolation.level is IsolationLevel.NONE and isolation.policy is IsolationPolicy.REQUIRE:
        return Check("Isolation", CheckStatus.MISSING, f"{finding} BERTH_ISOLATION is require.", remedy)
    if isolation.level is IsolationLevel.NONE and isolation.policy is IsolationPolicy.AUTO:
        finding += " Only the pods of one project can run at a time."
    return Check("Isolation", CheckStatus.LIMITED, finding, remedy)


def _check_limits(isolation: Isolation) -> Check:
    missing = [name for name in CONTROLLED if name not in isolation.limits]
    if not missing:
        return Check("Limits", CheckStatus.OK, f"Enforced: {', '.join(isolation.limits)}.")
    finding, remedy = split_remedy(isolation.limits_obstacle)
    default = (
        "Run the agent as root, or delegate its control group, for example with systemd's `Delegate=yes`."
    )
    return Check(
        "Limits", CheckStatus.LIMITED, f"Not enforced: {', '.join(missing)}. {finding}", remedy or default
    )


def _check_system_calls(isolation: Isolation) -> Check:
    if isolation.seccomp:
        return Check("System calls", CheckStatus.OK, "Filtered by seccomp.")
    reason = isolation.seccomp_obstacle or "Pods are not isolated."
    return Check("System calls", CheckStatus.LIMITED, f"Not filtered. {reason}")


def _check_images(isolation: Isolation) -> Check:
    programs = ", ".join(f"{name} {version}" for name, version in _program_versions())
    if isolation.images:
        return Check("Images", CheckStatus.OK, f"Run by podman. Installed: {programs}.")
    finding, remedy = split_remedy(isolation.images_obstacle)
    return Check("Images", CheckStatus.LIMITED, f"{finding} Installed: {programs or 'none'}.", remedy)


def _program_versions() -> Iterator[tuple[str, str]]:
    for name in IMAGE_PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/usr/sbin:/usr/libexec/podman:/usr/lib/podman")
        if path is not None:
            yield name, _program_version(path)


def _program_version(path: str) -> str:
    try:
        completed = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return "that does not start"
    version = re.search(r"\d+(\.\d+)+", completed.stdout or completed.stderr)
    return version[0] if version else "of unknown version"


def _check_gpus() -> Check:
    if simulates_gpus():
        count = os.environ[DECLARED_VARIABLE]
        return Check("GPUs", CheckStatus.OK, f"{count} simulated, because `{DECLARED_VARIABLE}` is set.")
    measured = DeviceProbe().measure()
    nvidia, amd = nvidia_gpus(), amd_render_nodes()
    if measured or (amd and not nvidia):
        return Check("GPUs", CheckStatus.OK, f"{len(measured) or len(amd)} seen.")
    if nvidia:
        finding = f"The driver reports {len(nvidia)}, but nvidia-smi does not work."
        return Check(
            "GPUs", CheckStatus.LIMITED, finding, "Install the version of nvidia-smi that matches the driver."
        )
    return Check("GPUs", CheckStatus.OK, "None. `BERTH_DECLARED_GPUS` simulates GPUs for tests.")
