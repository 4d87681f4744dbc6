"""Package the worker program for session pods."""

import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import berth
import pools

PARTS = {
    "berth": (
        "__init__.py", "core/__init__.py", "core/backports.py", "core/frames.py", "core/problems.py",
        "worker/*.py",
    ),
    "pools": ("__init__.py", "plugins/**/*.py", "plugins/bootstrap.sh"),
}  # fmt: skip


@cache
def build_worker_program() -> bytes:
    """Return a zip archive of the worker program, without secrets.

    Workers import it, so they always run their server's version.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (berth, pools):
            root = Path(str(package.__file__)).parent
            for part in PARTS[package.__name__]:
                for path in sorted(root.glob(part)):
                    archive.write(path, f"{package.__name__}/{path.relative_to(root).as_posix()}")
        cloudpickle = find_spec("cloudpickle")
        assert cloudpickle is not None
        assert cloudpickle.origin is not None
        for path in sorted(Path(cloudpickle.origin).parent.glob("*.py")):
            archive.write(path, f"cloudpickle/{path.name}")
    return packed.getvalue()
