"""Real Git repositories, served over SSH and HTTPS on loopback addresses."""

import base64
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.certificates import Authority

AUTHOR = {"GIT_AUTHOR_NAME": "d", "GIT_AUTHOR_EMAIL": "d@example.org"}
COMMITTER = {"GIT_COMMITTER_NAME": "d", "GIT_COMMITTER_EMAIL": "d@example.org"}
BACKEND = "/usr/lib/git-core/git-http-backend"


def git(directory: Path, *arguments: str, source: bytes | None = None, **variables: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", **AUTHOR, **COMMITTER, **variables}
    answer = subprocess.run(
        ["git", "-C", str(directory), *arguments], check=True, capture_output=True, env=env, input=source
    )
    return answer.stdout.decode().strip()


@dataclass(frozen=True)
class Repository:
    """A bare repository, and a checkout for making commits."""

    path: Path
    checkout: Path

    def commit(self, files: Mapping[str, str | bytes], message: str = "Change") -> str:
        """Commit and push files. Return the commit ID."""
        for name, content in files.items():
            file = self.checkout / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        git(self.checkout, "add", "--all")
        return self.push(message)

    def push(self, message: str = "Change") -> str:
        git(self.checkout, "commit", "--quiet", "--allow-empty", "--message", message)
        git(self.checkout, "push", "--quiet", "origin", "HEAD")
        return git(self.checkout, "rev-parse", "HEAD")

    def tag(self, name: str, *options: str) -> None:
        git(self.checkout, "tag", *options, name)
        git(self.checkout, "push", "--quiet", "origin", f"refs/tags/{name}")


def new_repository(root: Path, name: str = "train.git") -> Repository:
    path, checkout = root / name, root / f"{name}.checkout"
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--bare", "--initial-branch=main", name)
    git(root, "clone", "--quiet", str(path), str(checkout))
    git(checkout, "checkout", "--quiet", "-B", "main")
    return Repository(path, checkout)


@dataclass
class HttpsServer:
    """HTTPS server for the repositories in a directory.

    If `token` is set, requests must send it as the password. If `redirect` is set, requests are redirected to
    it.
    """

    root: Path
    port: int
    ca_file: Path
    token: str = ""
    redirect: str = ""
    requests: list[str] = field(default_factory=list)
    on_request: Callable[[], None] = lambda: None

    def url(self, name: str = "train.git", host: str = "127.0.0.1") -> str:
        return f"https://{host}:{self.port}/{name}"


class _Handler(BaseHTTPRequestHandler):
    git_server: HttpsServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        self.git_server.requests.append(self.path)
        self.git_server.on_request()
        if self.git_server.redirect:
            self._send(302, [("Location", self.git_server.redirect + self.path)], b"")
        elif self.git_server.token and not self._knows_token():
            self._send(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
        else:
            self._run_backend(body)

    def _knows_token(self) -> bool:
        login = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic "))
        return login.decode().partition(":")[2] == self.git_server.token

    def _run_backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        env = {
            **os.environ, "GIT_PROJECT_ROOT": str(self.git_server.root), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "CONTENT_LENGTH": str(len(body)), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }  # fmt: skip
        answer = subprocess.run([BACKEND], input=body, capture_output=True, env=env, check=False).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        self._send(status, [pair for pair in headers if pair[0] != "Status"], content)  # type: ignore[misc]

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def https_server(directory: Path, root: Path) -> Iterator[HttpsServer]:
    """Serve repositories with git-http-backend over TLS, with a certificate for 127.0.0.1 and localhost."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority(directory, "git")

    handler = type("Handler", (_Handler,), {})
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = authority.server("127.0.0.1", "localhost")
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    server = HttpsServer(root, listener.server_address[1], authority.file)
    handler.git_server = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
