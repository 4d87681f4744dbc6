"""Secret keys, generated once and readable by the owner only."""

import os
import secrets
from pathlib import Path


def secret_key(home: Path) -> str:
    return kept_key(home / "secret_key")


def kept_key(path: Path) -> str:
    if not path.exists():
        write_once(path, secrets.token_urlsafe(50))
    return path.read_text().strip()


def write_once(path: Path, text: str) -> None:
    """Of two processes that start together one writes; a reader never sees half a key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text + "\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
