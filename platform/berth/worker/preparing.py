"""Install the requirements of a session's plugins before its worker accepts calls.

They are installed on top of the pool's packages, in an environment in the pod's directory. The worker then
restarts in that environment.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import cloudpickle

from berth.worker.config import WorkerConfig
from pools.plugins.base import Operation, Plugin
from pools.plugins.checks import image_problems
from pools.plugins.compose import bootstrap_all, transform_all
from pools.plugins.errors import PluginError
from pools.plugins.facts import Cluster
from pools.plugins.image import Image
from pools.plugins.script import bootstrap_script, compute_digest

PREPARED_VARIABLE = "BERTH_SESSION_ENVIRONMENT"  # environment variable, set for the restarted worker
PYTHON = "{}.{}".format(*sys.version_info)
NVIDIA = ("/proc/driver/nvidia/version", "/dev/nvidiactl")


class PreparationFailed(PluginError):
    """Raised if the session's plugins cannot be installed. The message states the reason."""


def load_session_plugins(
    setup: bytes, config: WorkerConfig, should_continue: Callable[[], bool]
) -> tuple[Plugin, ...]:
    """Return the session's plugins once their requirements are installed.

    If anything has to be installed, the process restarts and this function does not return. Raises
    PreparationFailed, HookFailed, and any error from unpickling the client's code.
    """
    if not setup:
        return ()
    installing, hooks = cloudpickle.loads(setup)
    if PREPARED_VARIABLE not in os.environ:
        _prepare(cloudpickle.loads(installing), config, should_continue)
    plugins: tuple[Plugin, ...] = cloudpickle.loads(hooks)
    return plugins


def _prepare(plugins: tuple[Plugin, ...], config: WorkerConfig, should_continue: Callable[[], bool]) -> None:
    names = [plugin.name for plugin in plugins if plugin.transform or plugin.bootstrap]
    if not names:
        return
    image, operations = _compose_image(plugins, config)
    if not (image.pip or image.apt or operations):
        os.environ.update(image.env)
        return
    python = _build_environment(image, operations, names)
    if not should_continue():
        raise PreparationFailed("the session was stopped")
    sys.stdout.flush()
    sys.stderr.flush()
    home = python.parent.parent
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    variables = {"VIRTUAL_ENV": str(home), "PATH": path, PREPARED_VARIABLE: home.name}
    os.execve(python, [str(python), "-m", "berth.worker"], {**os.environ, **image.env, **variables})  # noqa: S606


def _compose_image(plugins: tuple[Plugin, ...], config: WorkerConfig) -> tuple[Image, tuple[Operation, ...]]:
    """Return the image and operations that the session adds to the node's environment."""
    node_env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    cluster = Cluster(
        os.environ.get("BERTH_POOL", ""), config.head_address, config.nodes, config.gpus,
        cuda=bool(config.gpus) and any(Path(path).exists() for path in NVIDIA),
    )  # fmt: skip
    image = transform_all(plugins, Image(env=node_env), cluster)
    image = replace(image, env={n: value for n, value in image.env.items() if node_env.get(n) != value})
    _check_installable(image, cluster.name)
    return replace(image, python=PYTHON), bootstrap_all(plugins, cluster)


def _check_installable(image: Image, pool: str) -> None:
    if problems := list(image_problems(image)):
        raise PreparationFailed(f"the session's plugins cannot be installed: {problems[0]}")
    if image.python not in ("", PYTHON):
        raise PreparationFailed(
            f"a plugin of the session requires Python {image.python}, but the nodes of pool {pool} run "
            f"{PYTHON}. Set the pool's `environment.python` to {image.python}."
        )
    if missing := [name for name in image.secrets if not os.environ.get(name)]:
        raise PreparationFailed(
            f"a plugin of the session needs the secret {missing[0]}. Add {missing[0]} to the session's "
            f"`secrets`, or declare the plugin in pool {pool}, which then stores the secret."
        )


def _build_environment(image: Image, operations: tuple[Operation, ...], names: Iterable[str]) -> Path:
    """Create the session's environment, and return the path of its Python. Raises PreparationFailed."""
    root = Path(os.environ["BERTH_POD_DIR"], "session")
    root.mkdir(parents=True, exist_ok=True)
    script, phases = root / "script", root / "phases"
    script.write_text(bootstrap_script(image, operations), encoding="utf-8")
    phases.touch()
    variables = {
        "BERTH_ENVIRONMENTS": str(root), "BERTH_PHASES": str(phases), "BERTH_PYTHON": sys.executable,
        "BERTH_APT": "no", "BERTH_BESIDE": "yes",
    }  # fmt: skip
    env = {**os.environ, **variables}
    code = subprocess.run(["/bin/sh", script], stdin=subprocess.DEVNULL, env=env, check=False).returncode
    if code:
        raise PreparationFailed(_failure_message(phases.read_text(encoding="utf-8"), code, ", ".join(names)))
    return root / compute_digest(image, operations) / "bin" / "python"


def _failure_message(phases: str, code: int, names: str) -> str:
    failed: Mapping[str, str] = {}
    for line in phases.splitlines():
        event = json.loads(line)
        failed = event if event["state"] == "failed" else failed
    lines = [line.strip() for line in failed.get("message", "").splitlines() if line.strip()]
    reason = lines[-1] if lines else f"the script ended with exit code {code}"
    pool = os.environ.get("BERTH_POOL", "")
    return (
        f"the session's plugin requirements could not be installed ({names}): "
        f"{failed.get('phase', 'script')}: {reason}. "
        f"Correct the plugin, or declare the plugin in pool {pool} to install it when nodes boot."
    )
