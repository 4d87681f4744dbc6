"""Tests for the structural rules of the repository."""

import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 400


def test_platform_folder_does_not_shadow_the_standard_library() -> None:
    assert not [path.name for path in (ROOT / "platform").iterdir() if path.suffix in {".py", ".pyi", ".so"}]
    assert Path(platform.__file__).is_relative_to(Path(sys.base_prefix))
    assert platform.python_version_tuple()


def test_importing_platform_in_the_repository_root_finds_the_standard_library() -> None:
    code = "import platform; print(platform.python_implementation())"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip() == "CPython"


def test_no_file_exceeds_the_maximum_length() -> None:
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in own_modules()}
    assert not {name: length for name, length in lengths.items() if length > MAX_LINES}


def test_no_module_has_a_vague_name() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert not [str(file) for file in own_modules() if file.stem in vague or file.parent.name in vague]


def own_modules() -> list[Path]:
    tops = ("platform", "scheduler", "pools", "projects", "tests", "benchmarks", "examples")
    return [
        file for top in tops for file in sorted((ROOT / top).rglob("*.py")) if "migrations" not in file.parts
    ]
