"""Find Python interpreters on this machine."""

import shutil
import subprocess
from pathlib import Path


def find_python(version: str) -> str | None:
    """Return the path of a working interpreter of this Python version, or None."""
    name = f"python{version}"
    places = [shutil.which(name), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))]
    for place in filter(None, places):
        if subprocess.run([place, "-c", "import ssl"], capture_output=True, check=False).returncode == 0:
            return place
    return None
