"""Read a file with an engine list as nginx would read it."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

from projects.serving.base import RouterClient
from projects.serving.routers import StaticRouter

NAMES = {"engine.example.com": ("192.0.2.7",)}


def resolved(url: str) -> tuple[str, ...]:
    host = urlsplit(url).hostname or ""
    return NAMES.get(host, (host,))


class FileStage:
    """A stage with an engine list in a file, read at each reload as nginx would read it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.seen = folder / "upstreams" / "chat.conf", folder / "seen.conf"
        copy = f"import shutil; shutil.copy({str(self.path)!r}, {str(self.seen)!r})"
        reload = [sys.executable, "-S", "-c", copy]
        self.client = StaticRouter(self.path, "chat", resolve=resolved, reload=reload)
        self.made = 0

    def engine(self) -> str:
        self.made += 1
        return f"http://10.0.0.{self.made}:30000"

    def answers(self, count: int = 4) -> set[str]:
        words = [line.split() for line in self.seen.read_text().splitlines()] if self.seen.exists() else []
        return {
            f"http://{line[1].removesuffix(';')}" for line in words
            if line[:1] == ["server"] and line[2] != "down;"
        }  # fmt: skip


def listed(client: RouterClient) -> dict[str, bool]:
    return {worker.address: worker.healthy for worker in client.workers()}
