"""Image layer with the Python of the tests, for pods that run Python functions."""

import io
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

LEFT_OUT = {
    "__pycache__", "site-packages", "dist-packages", "test", "idlelib", "ensurepip", "tkinter", "turtledemo",
}  # fmt: skip


def python_layer(*packages: str) -> bytes:
    """Return a layer with Python as `/bin/python`, its libraries and packages of the test environment."""
    program = Path(sys.executable).resolve()
    standard = Path(sysconfig.get_paths()["stdlib"])
    extensions = sorted(standard.glob("lib-dynload/*.so"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for path in (program, *sorted(_libraries([program, *extensions]))):
            tar.add(path, str(path).lstrip("/"))
        tar.add(standard, str(standard).lstrip("/"), filter=_select)
        for name in packages:
            source = Path(sysconfig.get_paths()["purelib"]) / name
            target = standard / "site-packages" / name
            tar.add(source, str(target).lstrip("/"))
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, str(program)
        tar.addfile(link)
    return buffer.getvalue()


def _select(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = Path(entry.name)
    return None if LEFT_OUT & set(path.parts) or path.name.startswith("config-") else entry


def _libraries(programs: list[Path]) -> set[Path]:
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    return {Path(path) for path in re.findall(r"(/\S+\.so\S*) \(0x", listed)}
