"""Tests that Berth's code on nodes needs only Python 3.9."""

import ast
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest

from pools.joining.package import agent_package
from pools.runtimes.base import PodState
from pools.runtimes.ray.agents import NodeAgent
from pools.runtimes.ray.cluster import RayNode
from pools.runtimes.ray.scripts import PYTHON_VERSION, node_code, start_script
from tests.contracts.pods import order, poll_until
from tests.support.interpreters import find_python
from tests.support.ports import free_port

OLDEST = (3, 9)
HEAD = RayNode("machine/7", "metal", 0, "127.97.1.1", (), "5ec2e7" * 10)
# Names added to the standard library in 3.10, 3.11, 3.12 and 3.13.
NEWER = {
    "eventfd", "eventfd_read", "eventfd_write", "splice", "pairwise", "aclosing", "get_annotations",
    "UnionType", "NoneType", "TypeAlias", "ParamSpec", "Concatenate", "TypeGuard", "bit_count", "orig_argv",
    "stdlib_module_names", "anext", "aiter",
    "StrEnum", "ReprEnum", "UTC", "tomllib", "TaskGroup", "ExceptionGroup", "BaseExceptionGroup",
    "file_digest", "Self", "LiteralString", "assert_never", "login_tty", "add_note",
    "batched", "override", "unshare", "setns",
    "process_cpu_count",
}  # fmt: skip
NEWER_KEYWORDS = {"slots", "kw_only", "weakref_slot", "strict", "process_group", "delete_on_close"}


PYTHON_3_9 = find_python("3.9")
needs_3_9 = pytest.mark.skipif(PYTHON_3_9 is None, reason="no Python 3.9 on this machine")


def node_files(place: Path) -> list[Path]:
    """Return the files that machines unpack, and the modules of the agent."""
    with tarfile.open(fileobj=io.BytesIO(node_code())) as tar:
        tar.extractall(place, filter="data")
    with zipfile.ZipFile(io.BytesIO(agent_package())) as archive:
        archive.extractall(place)
    return sorted(place.rglob("*.py"))


def find_newer_parts(source: str) -> list[str]:
    """Return the syntax and names in the source code that Python 3.9 does not have."""
    tree = ast.parse(source, feature_version=OLDEST)
    results = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            results += [alias.name for alias in node.names if alias.name in NEWER]
        elif isinstance(node, ast.Attribute) and node.attr in NEWER:
            results.append(node.attr)
        elif isinstance(node, ast.Name) and node.id in NEWER:
            results.append(node.id)
        elif isinstance(node, ast.Call):
            results += [keyword.arg for keyword in node.keywords if keyword.arg in NEWER_KEYWORDS]
    return results


def has_unevaluated_annotations(source: str) -> bool:
    """Return whether annotations such as `int | None` stay unevaluated, as Python 3.9 requires."""
    nodes = list(ast.walk(ast.parse(source)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    local = {
        id(node) for function in functions for node in ast.walk(function) if isinstance(node, ast.AnnAssign)
    }
    evaluated = [node for node in nodes if id(node) not in local]
    written = [getattr(node, name, None) for node in evaluated for name in ("annotation", "returns")]
    parts = (part for annotation in written if annotation is not None for part in ast.walk(annotation))
    unions = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr) for part in parts)
    return not unions or "from __future__ import annotations" in source


@pytest.mark.parametrize(
    "source",
    ["from enum import StrEnum\n", "import datetime\ndatetime.UTC\n", "list(zip(a, b, strict=True))\n"],
)
def test_compatibility_check_detects_names_missing_in_python_3_9(source: str) -> None:
    assert find_newer_parts(source)


def test_compatibility_check_detects_syntax_and_annotations_unsupported_by_python_3_9() -> None:
    with pytest.raises(SyntaxError):
        find_newer_parts("match x:\n    case 1:\n        pass\n")
    assert not has_unevaluated_annotations("def f(x: int | None) -> None: ...\n")
    assert not has_unevaluated_annotations("def f() -> int | None: ...\n")


def test_node_code_is_compatible_with_python_3_9(tmp_path: Path) -> None:
    files = node_files(tmp_path)
    assert len(files) > 20
    for path in files:
        source = path.read_text(encoding="utf-8")
        assert (path.name, find_newer_parts(source)) == (path.name, [])
        assert has_unevaluated_annotations(source), (
            f"{path.name} evaluates an annotation that Python 3.9 cannot"
        )


@needs_3_9
def test_python_3_9_imports_every_node_module(tmp_path: Path) -> None:
    modules = [
        ".".join(path.relative_to(tmp_path).with_suffix("").parts)
        for path in node_files(tmp_path)
        if path.name not in ("__init__.py", "__main__.py")
    ]
    code = """import importlib, sys
sys.path.insert(0, sys.argv[1])
for module in sys.argv[2:]:
    importlib.import_module(module)
"""
    assert PYTHON_3_9
    subprocess.run([PYTHON_3_9, "-I", "-S", "-c", code, str(tmp_path), *modules], check=True)


AGENT = """
import json, sys, threading
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from pools.runtimes.ray.node.agent import Agent
from pools.runtimes.ray.node.pods import NodePods
pods = NodePods(Path(sys.argv[2]), "")
agent = Agent(("127.0.0.1", int(sys.argv[3])), pods, "secret", lambda: "no Ray here")
print("up", flush=True)
agent.serve_forever()
"""


@needs_3_9
def test_agent_on_python_3_9_runs_a_pod(tmp_path: Path) -> None:
    # The agent accepts an order, the shim runs the command, and the agent reports the end and the log.
    assert PYTHON_3_9
    node_files(tmp_path / "code")
    port = free_port()
    agent = subprocess.Popen(
        [PYTHON_3_9, "-I", "-S", "-c", AGENT, str(tmp_path / "code"), str(tmp_path / "node"), str(port)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert agent.stdout
        assert agent.stdout.readline() == b"up\n"
        with httpx.Client(trust_env=False, timeout=120) as client:
            node_agent = NodeAgent(client, f"http://127.0.0.1:{port}", "secret")
            entrypoint = node_agent.send_spec(order("p-1", "sh", "-c", "echo hello; exit 3"))
            assert PYTHON_3_9 in entrypoint, "the shim runs on the same Python"
            subprocess.run(["sh", "-c", entrypoint], check=True)
            report = poll_until(
                lambda: node_agent.get_reports(["p-1"])["p-1"], lambda report: report.state is PodState.EXITED
            )
            assert (report.exit_code, node_agent.read_log("p-1", 0, 100).data) == (3, b"hello\n")
            assert node_agent.list_pods() == ("p-1",)
    finally:
        agent.kill()
        agent.wait()


@pytest.mark.heavy
def test_error_on_an_older_python_states_the_required_version(tmp_path: Path) -> None:
    # The test runs the real script on a machine with an older Python and without a network.
    served, tools = tmp_path / "served/api/v1/machines", tmp_path / "bin"
    served.mkdir(parents=True)
    (served / "node.tar.gz").write_bytes(node_code())
    tools.mkdir()
    for tool in (
        "sh",
        "cat",
        "sed",
        "tar",
        "gzip",
        "curl",
        "mkdir",
        "rm",
        "sleep",
        "kill",
        "tail",
        "sha256sum",
        "cut",
        "date",
        "ln",
        "mv",
    ):
        place = shutil.which(tool)
        if place is not None:  # `kill` may be a shell builtin
            (tools / tool).symlink_to(place)
    (tools / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(PYTHON_3_9 or sys.executable)} "$@"\n')
    (tools / "python3").chmod(0o755)
    env = {
        "PATH": str(tools), "HOME": str(tmp_path), "BERTH_URL": f"file://{tmp_path}/served",
        "BERTH_MACHINE_STATE": str(tmp_path / "state"), "PIP_NO_INDEX": "1",
    }  # fmt: skip
    script = start_script(HEAD, HEAD)
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"Python {PYTHON_VERSION} is not on this machine (Python 3.")
    assert "BERTH_NODE_PYTHON" in last


@pytest.mark.heavy
def test_node_that_does_not_start_fails_with_the_agents_last_output(tmp_path: Path) -> None:
    served = tmp_path / "api/v1/machines"
    served.mkdir(parents=True)
    (served / "node.tar.gz").write_bytes(node_code())
    python = tmp_path / "python-without-ray"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    env = {
        **os.environ, "BERTH_URL": f"file://{tmp_path}", "BERTH_NODE_PYTHON": str(python), "PYTHONPATH": "",
        "BERTH_MACHINE_STATE": str(tmp_path / "state"), "BERTH_NODE_START_SECONDS": "6",
    }  # fmt: skip
    # A node that is not this machine.
    nowhere = RayNode("machine/7", "metal", 0, "192.0.2.1", (), "5ec2e7" * 10)
    script = start_script(nowhere, nowhere)
    try:
        done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "the agent is not responding" in done.stdout
        assert "Cannot assign requested address" in done.stderr, "the agent's traceback"
    finally:
        pid = int((tmp_path / "state/ray/pid").read_text())
        os.kill(pid, 15)
    assert json.loads((tmp_path / "state/ray/node.json").read_text())["is_head"] is True
