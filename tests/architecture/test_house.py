"""Here we hold the walls of the house."""
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_folder_platform_does_not_hide_pythons_own() -> None:
    assert not [path.name for path in (ROOT / "platform").iterdir() if path.suffix in {".py", ".pyi", ".so"}]
    assert Path(platform.__file__).is_relative_to(Path(sys.base_prefix))
    assert platform.python_version_tuple()


def test_python_finds_its_own_platform_from_the_root_of_the_checkout() -> None:
    code = "import platform; print(platform.python_implementation())"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip() == "CPython"
