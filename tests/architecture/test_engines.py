"""Tests that the engines do not import Django or modules with side effects."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("scheduler.engine", "projects.engine", "pools.engine")
SIMULATOR = "scheduler.simulator"
SIDE_EFFECT_MODULES = {
    "asyncio", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "shutil",
    "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
# The simulator reads files and measures its own run time. The engines only receive values.
ALLOWED_TO_SIMULATOR = {"pathlib", "time"}
# Libraries without side effects. Their types validate workload documents before other code reads them.
ALLOWED_LIBRARIES = {"cronsim", "numpy", "pydantic", "typing_extensions", "yaml"}
ALLOWED_IN_CORE = {"pydantic", "pydantic_core"}


def engine_modules(engine: str) -> list[Path]:
    return sorted((ROOT / engine.replace(".", "/")).rglob("*.py"))


def imported_modules(file: Path) -> set[str]:
    """Return the full name of every module that the file imports."""
    package = file.relative_to(ROOT).parent.parts
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            names.add(".".join(filter(None, [base, node.module])))
    return names


def is_allowed(name: str, *packages: str) -> bool:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return top not in SIDE_EFFECT_MODULES
    return top in ALLOWED_LIBRARIES or any(
        name == package or name.startswith(f"{package}.") for package in ("berth.core", *packages)
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_imports_only_shared_types_and_modules_without_side_effects(engine: str) -> None:
    broken = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in engine_modules(engine)
        for name in imported_modules(file)
        if not is_allowed(name, engine)
    }
    assert not broken


def test_simulator_imports_only_the_engine_and_file_access() -> None:
    broken = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in engine_modules(SIMULATOR)
        for name in imported_modules(file)
        if not is_allowed(name, SIMULATOR, "scheduler.engine") and name not in ALLOWED_TO_SIMULATOR
    }
    assert not broken


@pytest.mark.parametrize("package", [*ENGINES, SIMULATOR])
def test_package_loads_neither_django_nor_a_network_library(package: str) -> None:
    paths = [file.relative_to(ROOT).with_suffix("").parts for file in engine_modules(package)]
    names = [".".join(path).removesuffix(".__init__") for path in paths]
    assert names
    code = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        "heavy = {'django', 'rest_framework', 'psycopg', 'httpx', 'boto3', 'ray', 'structlog', 'channels'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_core_imports_only_pydantic_and_the_standard_library() -> None:
    broken = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in sorted((ROOT / "platform" / "berth" / "core").rglob("*.py"))
        for name in imported_modules(file)
        if (top := name.partition(".")[0]) not in sys.stdlib_module_names | ALLOWED_IN_CORE
        and not (top == "berth" and name.startswith("berth.core"))
    }
    assert not broken


@pytest.mark.heavy
def test_tasks_can_be_imported_before_any_other_scheduler_module() -> None:
    code = "import django; django.setup(); import scheduler.tasks"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
