"""Progress of an image pull, derived from the files that podman writes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from pools.runtimes.shim.processes import descendants

_MB = 1_000_000


class Progress:
    """Progress of an image pull. podman writes the layers to `directory`.

    `layers` lists the layer sizes in bytes.
    """

    def __init__(self, directory: str, layers: Sequence[int]) -> None:
        self._directory, self._layers = directory, list(layers)
        self._written = -1

    def describe(self) -> str:
        sizes = [os.stat(path).st_size for path in _list_files(self._directory)]
        received = f"{sum(sizes) / _MB:.0f} MB"
        if not self._layers:
            return f"pulling the image, {received}"
        total = len(self._layers)
        complete = sum((Counter(sizes) & Counter(self._layers)).values())
        if complete >= total:
            return f"unpacking {total} layers, {received}"
        return f"pulling layer {complete + 1} of {total}, {received}"

    def has_advanced(self, pid: int) -> bool:
        """Return whether the process or its descendants have written data since the last call."""
        written = sum(_written_bytes(each) for each in (pid, *descendants(pid)))
        has_advanced = abs(written - self._written) >= 1024
        if has_advanced:
            self._written = written
        return has_advanced


def _list_files(directory: str) -> list[str]:
    return [
        os.path.join(parent, name)
        for parent, _, names in os.walk(directory)
        for name in names
        if os.path.exists(os.path.join(parent, name))
    ]


def _written_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/io") as file:
            fields = dict(line.split(": ") for line in file.read().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields["wchar"])
