"""Download and unpack the code that a pod starts in.

A child process does the work. The child drops its privileges before it writes the first file, so that the
files belong to the pod's user. The shim handles requests to stop the pod while it waits for the child.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import time

from pools.runtimes.shim.interrupts import Interrupted, Interrupts
from pools.runtimes.shim.records import write_record
from pools.runtimes.shim.wakes import wake_listeners

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from http.client import HTTPResponse

DIRECTORY = "code"  # subdirectory of the pod's own directory
VARIABLE = "BERTH_CODE_DIR"
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 60.0, 60.0)  # seconds between attempts
READ_SECONDS = 60.0  # seconds without data after which the server has failed
REPORT_SECONDS = 1.0
BLOCK = 256 * 1024
_PR_SET_PDEATHSIG = 1
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # statuses after which another attempt may succeed
# After a response that ended early, the next attempt requests that the server checks its files first, because
# the response cannot contain the server's error.
_VERIFY = "?verify=true"
_RETRY, _BROKEN, _FAILED, _PROGRESS = "retry", "broken", "failed", "progress"


class Download:
    """Download of one pod's code. `cause` is set if the pod was stopped during the download."""

    def __init__(self, directory: str, order: dict[str, str], secret: str, interrupts: Interrupts) -> None:
        self._directory, self._order, self._secret = directory, order, secret
        self._interrupts = interrupts
        self._reported_at = 0.0
        self.cause = ""

    def run(self) -> str:
        """Create the directory with the code. Return an error message or ""."""
        try:
            kind = ""
            for number, pause in enumerate((*PAUSES, None), 1):
                kind, message = self._attempt(_VERIFY if kind == _BROKEN else "")
                if kind not in (_RETRY, _BROKEN) or pause is None:
                    return message and f"the code could not be downloaded: {message}"
                self._report(f"downloading the code: {message}; attempt {number} of {len(PAUSES) + 1}")
                self._pause(pause)
        except Interrupted as interrupted:
            self.cause = interrupted.cause
            return "stopped before its code had been downloaded"
        except OSError as error:
            return f"the code could not be unpacked: {error.strerror or error}"
        return ""

    def _attempt(self, query: str) -> tuple[str, str]:
        """Run the child process. Return the kind of its error and a message, or two empty strings."""
        import shutil  # imported on demand, because the import is slow

        # files of an earlier attempt
        shutil.rmtree(f"{self._directory}/work/{DIRECTORY}", ignore_errors=True)
        output, write_fd = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(output)
            _run_child(self._directory, self._order, query, self._secret, write_fd)
        os.close(write_fd)
        try:
            return self._wait(output)
        finally:
            os.close(output)
            _kill(pid)

    def _wait(self, output: int) -> tuple[str, str]:
        """Read the child's lines until it ends. Return the last one that is an error."""
        os.set_blocking(output, False)
        data = b""
        while True:
            self._interrupts.wait(60, output)
            try:
                part = os.read(output, 65536)
            except BlockingIOError:
                continue
            data += part
            *lines, data = data.split(b"\n") if part else [data, b""]
            for line in lines:
                kind, _, text = line.decode("utf-8", "replace").partition(" ")
                if kind == _PROGRESS:
                    self._report(text)
                elif kind == "done":
                    return "", ""
                elif kind in (_RETRY, _BROKEN, _FAILED):
                    return kind, text
            if not part:
                return _FAILED, "the process that downloads it was killed"

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            self._interrupts.wait(remaining)

    def _report(self, progress: str) -> None:
        """Record the progress for readers, at most once a second."""
        now = time.monotonic()
        if now - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at = now
        write_record(f"{self._directory}/progress", [("text", progress)], durable=False)
        wake_listeners(self._order["wake_dir"])


class _Failure(Exception):
    """Raised if an attempt fails. `kind` determines whether another attempt may succeed."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Body:
    """File-like response that counts the bytes read and reports the progress."""

    def __init__(self, response: HTTPResponse, output: int) -> None:
        self._response, self._output = response, output
        self._size = int(response.headers.get("Content-Length") or 0)
        self._read = 0
        self._next = time.monotonic() + REPORT_SECONDS

    def read(self, size: int) -> bytes:
        import http.client

        try:
            data = self._response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise _Failure(_BROKEN, f"the connection was lost: {error!r}") from error
        self._read += len(data)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REPORT_SECONDS
            total = f" of {self._size / 1e6:.0f}" if self._size else ""
            _send(self._output, _PROGRESS, f"downloading the code: {self._read / 1e6:.0f}{total} MB")
        return data

    def finish(self) -> None:
        """Read the rest of the response. Raises _Failure if the response is incomplete."""
        while self.read(BLOCK):
            pass
        if self._size and self._read != self._size:
            raise _Failure(_BROKEN, "the connection was lost")


def _run_child(directory: str, order: dict[str, str], query: str, secret: str, output: int) -> None:
    """Download the code in this forked process. Never return."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        _die_with_parent()
        work = os.open(f"{directory}/work", os.O_RDONLY | os.O_DIRECTORY)
        # Import this before the process changes to a user who may be unable to read Python's files.
        import tarfile

        response = _open(order["code_url"] + query, secret, order["code_ca"])
        os.fchdir(work)
        if uid := int(order.get("uid", "0")):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            _die_with_parent()  # a change of user resets this setting
        body = _Body(response, output)
        try:
            _unpack(body)
        except tarfile.TarError as error:
            raise _Failure(_BROKEN, f"the archive is damaged: {error}") from error
        body.finish()
        _send(output, "done", "")
    except _Failure as failure:
        _send(output, failure.kind, str(failure))
    except BaseException as error:  # the forked child must exit here, even after an unexpected error
        reason = error.strerror or error if isinstance(error, OSError) else repr(error)
        _send(output, _FAILED, f"it could not be unpacked: {reason}")
    os._exit(0)


def _open(url: str, secret: str, ca: str) -> HTTPResponse:
    """Request the archive. Raises _Failure."""
    import json
    import ssl
    import urllib.error
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Refuse redirects, which would send the secret to another server."""

    context = ssl.create_default_context(cadata=ca or None)
    handlers = [urllib.request.HTTPSHandler(context=context), NoRedirects()]
    if url.startswith(("http://127.", "http://localhost", "http://[::1]")):
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {secret}"})  # noqa: S310
    try:
        response: HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=READ_SECONDS)
    except urllib.error.HTTPError as error:
        text = error.read(4096).decode("utf-8", "replace")
        try:
            text = json.loads(text)["detail"]
        except (ValueError, KeyError, TypeError):
            pass
        kind = _RETRY if error.code in _TEMPORARY else _FAILED
        raise _Failure(kind, f"the server answered {error.code}: {text[:300]}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise _Failure(_RETRY, f"{url.split('/')[2]} does not respond: {reason}") from error
    return response


def _unpack(body: _Body) -> None:
    """Unpack the archive into a new directory. The server has checked paths and links."""
    import tarfile

    os.umask(0o077)
    os.mkdir(DIRECTORY, 0o700)
    os.chdir(DIRECTORY)
    with tarfile.open(fileobj=body, mode="r|", bufsize=BLOCK) as archive:  # type: ignore[call-overload]
        for member in archive:
            name = member.name
            if name.startswith("/") or ".." in name.split("/"):
                raise _Failure(_FAILED, f"the archive contains the path {name!r}")
            if os.path.dirname(name):
                os.makedirs(os.path.dirname(name), 0o700, exist_ok=True)
            if member.issym():
                os.symlink(member.linkname, name)
            elif member.isreg():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with os.fdopen(os.open(name, flags, 0o700 if member.mode & 0o100 else 0o600), "wb") as file:
                    content = archive.extractfile(member)
                    while data := content.read(BLOCK):
                        file.write(data)
                os.utime(name, (member.mtime, member.mtime))
            else:
                raise _Failure(_FAILED, f"the archive contains a special file, {name!r}")


def _send(output: int, kind: str, text: str) -> None:
    """Write a line that is short enough for one write to the pipe."""
    line = f"{kind} {' '.join(text.split())}".encode("utf-8", "replace")[:1000]
    os.write(output, line + b"\n")


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _kill(pid: int) -> None:
    """End the child if it is still running, and reap it."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
