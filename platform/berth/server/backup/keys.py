"""Key files of an installation, and its installed version."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from berth.core.version import installed_version
from berth.home import CHECKOUT, is_checkout

NAMES = ("secret_key", "webhook_secret")


def key_files(home: Path) -> dict[str, bytes]:
    """Return the files of the keys that were generated in BERTH_HOME.

    Keys from environment variables are not included.
    """
    return {name: (home / name).read_bytes() for name in NAMES if (home / name).is_file()}


def missing_keys(home: Path) -> tuple[str, ...]:
    """Return the names of missing keys. Must be called before Django's settings generate the keys."""
    return tuple(name for name in NAMES if not (home / name).exists())


def put_keys(home: Path, keys: Mapping[str, bytes], missing: Collection[str]) -> tuple[list[str], list[str]]:
    """Write the keys in `missing`, and keep existing keys.

    Return the names of the written keys, and of the existing keys that differ from those in `keys`.
    """
    written, differing = [], []
    for name, content in keys.items():
        if name in missing:
            _write_key(home / name, content)
            written.append(name)
        elif (home / name).read_bytes() != content:
            differing.append(name)
    return written, differing


def _write_key(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)


def running_version() -> str:
    return installed_version(f"checkout at {CHECKOUT}" if is_checkout() else "unknown")
