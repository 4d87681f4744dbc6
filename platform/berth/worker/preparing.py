"""Install the requirements of a session's plugins on this node before its worker takes calls.

The pool's plugins are installed when its nodes boot. The session's plugins get a separate environment in the
pod's directory, on top of the pool's packages, built by the same script as a node's environment. The worker
then restarts with the Python of that environment.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import cloudpickle

from berth.worker.facts import Facts
from pools.plugins.base import Operation, Plugin
from pools.plugins.checks import problems_of_image
from pools.plugins.compose import bootstrap_all, transform_all
from pools.plugins.errors import PluginError
from pools.plugins.facts import Cluster
from pools.plugins.image import Image
from pools.plugins.script import bootstrap_script, digest_of

PREPARED = "BERTH_SESSION_ENVIRONMENT"  # set after the restart
NVIDIA = ("/proc/driver/nvidia/version", "/dev/nvidiactl")


class NotPrepared(PluginError):
    """The requirements of the session's plugins cannot be installed; the message says what the pool lacks."""


def given_plugins(setup: bytes, facts: Facts, goes_on: Callable[[], bool]) -> tuple[Plugin, ...]:
    """Return the session's plugins once their requirements are installed.

    If anything must be installed, the process restarts and this function does not return. Raises NotPrepared,
    HookFailed, and any error from unpickling the client's code.
    """
    if not setup:
        return ()
    installing, hooks = cloudpickle.loads(setup)
    if PREPARED not in os.environ:
        _prepare(cloudpickle.loads(installing), facts, goes_on)
    plugins: tuple[Plugin, ...] = cloudpickle.loads(hooks)
    return plugins


def _prepare(plugins: tuple[Plugin, ...], facts: Facts, goes_on: Callable[[], bool]) -> None:
    names = [plugin.name for plugin in plugins if plugin.transform or plugin.bootstrap]
    if not names:
        return
    image, operations = _compose_image(plugins, facts)
    if not (image.pip or image.apt or operations):
        os.environ.update(image.env)
        return
    python = _build_environment(image, operations, names)
    if not goes_on():
        raise NotPrepared("the session was stopped")
    sys.stdout.flush()
    sys.stderr.flush()
    home = python.parent.parent
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    own = {"VIRTUAL_ENV": str(home), "PATH": path, PREPARED: home.name}
    os.execve(python, [str(python), "-m", "berth.worker"], {**os.environ, **image.env, **own})  # noqa: S606


def _compose_image(plugins: tuple[Plugin, ...], facts: Facts) -> tuple[Image, tuple[Operation, ...]]:
    """Return the image and the operations that the session adds to its node."""
    there = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    cluster = Cluster(
        os.environ.get("BERTH_POOL", ""), facts.head_address, facts.nodes, facts.gpus,
        cuda=bool(facts.gpus) and any(Path(path).exists() for path in NVIDIA),
    )  # fmt: skip
    image = transform_all(plugins, Image(env=there), cluster)
    image = replace(image, env={n: value for n, value in image.env.items() if there.get(n) != value})
    _check(image, cluster.name)
    return image, bootstrap_all(plugins, cluster)


def _check(image: Image, pool: str) -> None:
    """Raise NotPrepared for requirements that cannot be installed on this node."""
    if problems := list(problems_of_image(image)):
        raise NotPrepared(f"the session's plugins cannot be installed: {problems[0]}")
    ours = "{}.{}".format(*sys.version_info)
    if image.python not in ("", ours):
        raise NotPrepared(
            f"a plugin of the session needs Python {image.python}, and the nodes of the pool {pool} run "
            f"{ours}. Let the pool declare it in `environment.python`."
        )
    if missing := [name for name in image.secrets if not os.environ.get(name)]:
        raise NotPrepared(
            f"a plugin of the session needs the secret {missing[0]}. Declare the plugin on the pool {pool}, "
            "which keeps its secrets, or set the variable in the session's `env`."
        )


def _build_environment(image: Image, operations: tuple[Operation, ...], names: Iterable[str]) -> Path:
    """Run the bootstrap script, and return the Python of the new environment."""
    root = Path(os.environ["BERTH_POD_DIR"], "session")
    root.mkdir(parents=True, exist_ok=True)
    script, phases = root / "script", root / "phases"
    script.write_text(bootstrap_script(image, operations), encoding="utf-8")
    phases.touch()
    own = {
        "BERTH_ENVIRONMENTS": str(root), "BERTH_PHASES": str(phases), "BERTH_PYTHON": sys.executable,
        "BERTH_APT": "no", "BERTH_BESIDE": "yes",
    }  # fmt: skip
    env = {**os.environ, **own}
    code = subprocess.run(["/bin/sh", script], stdin=subprocess.DEVNULL, env=env, check=False).returncode
    if code:
        raise NotPrepared(_failure_message(phases.read_text(encoding="utf-8"), code, ", ".join(names)))
    return root / digest_of(image, operations) / "bin" / "python"


def _failure_message(phases: str, code: int, names: str) -> str:
    failed: Mapping[str, str] = {}
    for line in phases.splitlines():
        event = json.loads(line)
        failed = event if event["state"] == "failed" else failed
    lines = [line.strip() for line in failed.get("message", "").splitlines() if line.strip()]
    reason = lines[-1] if lines else f"the script ended with exit code {code}"
    pool = os.environ.get("BERTH_POOL", "")
    return (
        f"the requirements of the session's plugins could not be installed ({names}): "
        f"{failed.get('phase', 'script')}: {reason}. "
        f"Correct the plugin, or let the pool {pool} declare it: its nodes install it when they boot."
    )
