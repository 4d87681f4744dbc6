"""Remove the least recently used images when the image storage exceeds its size limit."""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any

from pools.runtimes.images.podman import Podman
from pools.runtimes.images.store import ImageStore

_EVERYTHING = 0


def evict(podman: Podman, limit: int) -> None:
    """Remove unused images, least recently used first, until the layers of all images take at most `limit`
    bytes.
    """
    store = podman.store
    for digest in _sort_oldest_first(store):
        if stored_bytes(store) <= limit:
            return
        _remove(podman, digest)


def evict_all(podman: Podman) -> None:
    """Remove all unused images, because the disk is full."""
    evict(podman, _EVERYTHING)


def stored_bytes(store: ImageStore) -> int:
    """Return the total size of all image layers in bytes, counting shared layers once.

    Layers of a killed pull are not counted, because removing images would not free them.
    """
    try:
        layers = {layer["id"]: layer for layer in _read(f"{store.root}/graph/overlay-layers/layers.json")}
        images = _read(f"{store.root}/graph/overlay-images/images.json")
        pending, used = [image.get("layer", "") for image in images], set()
        while pending:
            name = pending.pop()
            if name in layers and name not in used:
                used.add(name)
                pending.append(layers[name].get("parent", ""))
        return sum(int(layers[name].get("diff-size", 0)) for name in used)
    except (OSError, ValueError, KeyError, AttributeError):
        return 0


def _read(path: str) -> list[dict[str, Any]]:
    with open(path) as file:
        return list(json.load(file))


def _sort_oldest_first(store: ImageStore) -> list[str]:
    uses = []
    for entry in os.scandir(store.digests):
        if not entry.name.endswith(".new"):
            uses.append((entry.stat().st_mtime, entry.name))
    return [name for _, name in sorted(uses)]


def _remove(podman: Podman, digest: str) -> None:
    """Remove an image, unless a pod uses it or is about to use it."""
    fd = os.open(f"{podman.store.locks}/{digest}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = [value for key, value in podman.store.read_config(digest) or () if key == "name"]
        removed = podman.run("rmi", *names)
        if removed.code == 0 or "image not known" in removed.errors:
            podman.store.delete_records(digest)
    except BlockingIOError:
        pass
    finally:
        os.close(fd)
