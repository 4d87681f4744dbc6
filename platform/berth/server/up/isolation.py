"""Choose and describe the isolation of pods in local pools when Berth starts."""

import os
from pathlib import Path
from typing import NamedTuple

from berth.server.up.errors import StartupError
from pools.providers.hardware import detect_local_machine
from pools.runtimes.enclosure.levels import (
    LIMITS_VARIABLE,
    VARIABLE,
    Isolation,
    IsolationLevel,
    IsolationPolicy,
)
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.limits.cgroups import CPU, MEMORY

GPUS_VARIABLE, DEMO_GPUS = "BERTH_DECLARED_GPUS", "8"
OFF = f"""\
  Warning: pods are not isolated, because {VARIABLE} is off. Every pod can read and change all of
  Berth's data and the pods of all other projects.
"""


class LocalPodSettings(NamedTuple):
    """Settings for pods in local pools: environment variables to add, and a notice for the terminal."""

    variables: dict[str, str]
    notice: str


def choose_local_settings(home: Path, demo: bool) -> LocalPodSettings:
    """Return the settings for pods in local pools, and a notice that explains them.

    A node that cannot isolate pods serves only one project. A demo therefore turns isolation off, ignores
    limits that cannot be enforced, and simulates GPUs if there are none. Environment variables override these
    choices. Raises StartupError if a variable is invalid.
    """
    try:
        isolation = LocalRuntime(home / "run").isolation
    except ValueError as error:
        raise StartupError(str(error)) from None
    variables: dict[str, str] = {}
    notice = _isolation_notice(isolation)
    if demo:
        if isolation.level is IsolationLevel.NONE and VARIABLE not in os.environ:
            variables[VARIABLE] = IsolationPolicy.OFF.value
            notice = f"  Warning: the demo runs its pods without isolation. {isolation.obstacle}\n"
        if not {MEMORY, CPU} <= set(isolation.limits) and LIMITS_VARIABLE not in os.environ:
            variables[LIMITS_VARIABLE] = "off"
            notice += f"  Note: the demo ignores resource limits in documents. {isolation.limits_obstacle}\n"
        if GPUS_VARIABLE not in os.environ and not detect_local_machine().devices:
            variables[GPUS_VARIABLE] = DEMO_GPUS
    return LocalPodSettings(variables, notice)


def _isolation_notice(isolation: Isolation) -> str:
    if isolation.policy is IsolationPolicy.OFF:
        return OFF
    if isolation.level is IsolationLevel.USERS:
        return ""
    if isolation.level is IsolationLevel.NAMESPACES:
        return f"  Note: {isolation.obstacle}\n"
    serves = "runs no pods" if isolation.policy is IsolationPolicy.REQUIRE else "serves only one project"
    return f"  Warning: this machine {serves}. {isolation.obstacle}\n"
