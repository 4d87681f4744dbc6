"""Read and write the files in the agent's state directory."""

from __future__ import annotations

import os

STATE = os.environ.get("BERTH_MACHINE_STATE", "/var/lib/berth-machine")
AGENT_FILE = os.path.join(STATE, "berth-agent")


def read_file(path: str) -> str:
    """Return a file's text without surrounding whitespace, or "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_private_file(path: str, content: str | bytes) -> str:
    """Atomically write a file that only its owner can read. Return its path."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    draft = "%s.%d.new" % (path, os.getpid())
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)
    return path


def load_secret() -> str:
    return read_file(os.path.join(STATE, "secret"))


def store_secret(secret: str) -> str:
    write_private_file(os.path.join(STATE, "secret"), secret)
    return secret


def output_end(path: str) -> str:
    """Return up to 4000 printable characters from the end of a file, or "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, 2) - 16000, 0))
            return printable_tail(file.read().decode("utf-8", "replace"))
    except OSError:
        return ""


def printable_tail(text: str) -> str:
    return "".join(char for char in text if char.isprintable() or char in "\n\t")[-4000:]
