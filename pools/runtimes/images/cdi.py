"""Find NVIDIA GPUs in specifications of the Container Device Interface (CDI).

CDI also mounts the driver's libraries. `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` writes a
specification.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
_KIND = "nvidia.com/gpu"
_NAME = re.compile(r"""^[-\s{,]*["']?name["']?:\s*["']?([\w.:-]+)""", re.MULTILINE)


def cdi_devices(ids: Sequence[str], directories: Sequence[Path] = DIRECTORIES) -> tuple[str, ...]:
    """Return podman's device names for the GPUs, or an empty tuple if any GPU has no CDI specification."""
    names = {name for text in _specifications(directories) for name in _NAME.findall(text)}
    if not ids or not names.issuperset(ids):
        return ()
    return tuple(f"{_KIND}={name}" for name in ids)


def _specifications(directories: Sequence[Path]) -> list[str]:
    files = [path for directory in directories for path in sorted(directory.glob("*"))
             if path.suffix in (".yaml", ".yml", ".json")]  # fmt: skip
    texts = [path.read_text(errors="replace") for path in files]
    return [text for text in texts if _KIND in text]
