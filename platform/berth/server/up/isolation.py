"""Choose and describe the isolation of pods in local pools when Berth starts."""

import os
from pathlib import Path

from berth.server.up.errors import StartupError
from pools.runtimes.enclosure.levels import LIMITS_VARIABLE, VARIABLE, Isolation, Level, Policy
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.cgroups import CPU, MEMORY

OFF = f"""\
  Warning: pods are not isolated, because {VARIABLE} is off. Every pod can read and change all of
  Berth's data and the pods of all other projects.
"""


def choose_isolation(home: Path, demo: bool) -> str:
    """Return a notice for the terminal about how pods are isolated.

    Without enclosures, a node serves only one project. A demo has several projects, which all belong to the
    user who runs the demo. Unless the variable is set, a demo therefore turns isolation off, and the notice
    says so. Raises StartupError if the variable is invalid.
    """
    try:
        isolation = LocalRuntime(home / "run").isolation
    except ValueError as error:
        raise StartupError(str(error)) from None
    limits = _ignore_limits(isolation) if demo and LIMITS_VARIABLE not in os.environ else ""
    if demo and isolation.level is Level.NONE and VARIABLE not in os.environ:
        os.environ[VARIABLE] = Policy.OFF.value
        return f"  Warning: the demo runs its pods without isolation. {isolation.obstacle}\n{limits}"
    return _isolation_notice(isolation) + limits


def _ignore_limits(isolation: Isolation) -> str:
    """Allow the demo's pods to start although this machine cannot enforce limits.

    Return a notice about missing limits.
    """
    if {MEMORY, CPU} <= set(isolation.limits):
        return ""
    os.environ[LIMITS_VARIABLE] = "off"
    return f"  Note: the demo ignores resource limits in documents. {isolation.limits_obstacle}\n"


def _isolation_notice(isolation: Isolation) -> str:
    if isolation.policy is Policy.OFF:
        return OFF
    if isolation.level is Level.USERS:
        return ""
    if isolation.level is Level.NAMESPACES:
        return f"  Note: {isolation.obstacle}\n"
    serves = "runs no pods" if isolation.policy is Policy.REQUIRE else "serves only one project"
    return f"  Warning: this machine {serves}. {isolation.obstacle}\n"
