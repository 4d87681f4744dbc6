"""Keep the storage of images within its size, by removing those that were not used for the longest time."""

from __future__ import annotations

import fcntl
import json
import os

from pools.runtimes.images.podman import Podman
from pools.runtimes.images.store import ImageStore

_EVERYTHING = 0


def evict(podman: Podman, limit: int) -> None:
    """Remove unused images until the layers take at most `limit` bytes."""
    store = podman.store
    for digest in _oldest_first(store):
        if stored_bytes(store) <= limit:
            return
        _remove(podman, digest)


def evict_all(podman: Podman) -> None:
    """Remove all unused images, because the disk is full."""
    evict(podman, _EVERYTHING)


def stored_bytes(store: ImageStore) -> int:
    """Return the unpacked size of all layers. Layers that images share count once."""
    try:
        with open(f"{store.root}/graph/overlay-layers/layers.json") as file:
            layers = json.load(file)
        return sum(int(layer.get("diff-size", 0)) for layer in layers)
    except (OSError, ValueError, AttributeError):
        return 0


def _oldest_first(store: ImageStore) -> list[str]:
    uses = []
    for entry in os.scandir(store.digests):
        if not entry.name.endswith(".new"):
            uses.append((entry.stat().st_mtime, entry.name))
    return [name for _, name in sorted(uses)]


def _remove(podman: Podman, digest: str) -> None:
    """Remove an image, unless a pod is about to use it or uses it."""
    fd = os.open(f"{podman.store.locks}/{digest}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = [value for key, value in podman.store.read_config(digest) or () if key == "name"]
        removed = podman.run("rmi", *names)
        if removed.code == 0 or "image not known" in removed.errors:
            podman.store.drop(digest)
    except BlockingIOError:
        pass
    finally:
        os.close(fd)
