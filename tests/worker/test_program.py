"""Tests that the worker needs only Python, and that the server needs no worker code."""

import ast
import subprocess
import sys
from pathlib import Path

from projects.worker_program import build_worker_program

ROOT = Path(__file__).resolve().parents[2]
OPENERS = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}


def test_packed_worker_runs_on_a_python_installation_without_packages(tmp_path: Path) -> None:
    # Without site packages or environment variables, the worker reports that it has no session.
    program = tmp_path / "worker.zip"
    program.write_bytes(build_worker_program())
    code = (
        f"import sys, runpy; sys.path.insert(0, {str(program)!r})\n"
        "import berth.worker.executor, berth.worker.own_ray, pools.plugins.registry as registry\n"
        "assert 'torch' in registry.available_plugins()\n"
        "assert all(not hasattr(m, '__file__') or not m.__file__ or 'site-packages' not in m.__file__\n"
        "           for m in list(sys.modules.values())), 'something came from elsewhere'\n"
        "runpy.run_module('berth.worker', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "This is not a session pod: 'BERTH_URL'" in done.stderr


def test_server_imports_no_module_that_unpickles_data() -> None:
    served = [ROOT / "scheduler", ROOT / "projects", ROOT / "pools"]
    served += [ROOT / "platform" / "berth" / part for part in ("core", "db", "server")]
    assert all(folder.is_dir() for folder in served)
    importers = {
        f"{file.relative_to(ROOT)} imports {name}"
        for place in served
        for file in place.rglob("*.py")
        if "plugins/builtin" not in file.as_posix()
        for node in ast.walk(ast.parse(file.read_text()))
        for name in _imported(node)
        if name.partition(".")[0] in OPENERS
    }
    assert not importers


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
