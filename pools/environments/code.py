"""Package Berth's code for workers."""

import hashlib
import io
import tarfile
from functools import cache
from pathlib import Path

import berth
import pools

_ROOTS = {"berth": Path(berth.__path__[0]).parent, "pools": Path(pools.__path__[0]).parent}
_PARTS = (
    "berth/__init__.py", "berth/core/**/*.py", "berth/client/**/*.py", "berth/worker/**/*.py",
    "berth/examples/**/*.py", "pools/__init__.py", "pools/plugins/**/*.py", "pools/runtimes/__init__.py",
    "pools/runtimes/shim/__init__.py", "pools/runtimes/shim/channels/*.py",
)  # fmt: skip


@cache
def worker_code() -> bytes:
    """Return Berth's code for workers as a tar archive that is reproducible and contains no secrets."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for part in _PARTS:
            root = _ROOTS[part.partition("/")[0]]
            for path in sorted(root.glob(part)):
                content = path.read_bytes()
                member = tarfile.TarInfo(path.relative_to(root).as_posix())
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write_code_file(directory: Path) -> Path:
    """Write the worker's code to a file in `directory` and return its path."""
    path = directory / f"worker-{hashlib.sha256(worker_code()).hexdigest()[:16]}.tar"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(".new")
        draft.write_bytes(worker_code())
        draft.rename(path)
    return path
