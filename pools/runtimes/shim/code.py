"""Download a pod's code and unpack it into the directory where the pod starts.

A child process without privileges does this, so that the files belong to the pod's user.
"""

from __future__ import annotations

import os
import time

from pools.runtimes.shim.transfers.child import (
    BROKEN,
    FAILED,
    PROGRESS,
    REPORT_SECONDS,
    Transfer,
    TransferFailure,
    die_with_parent,
    send,
)
from pools.runtimes.shim.transfers.http import open_url

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from http.client import HTTPResponse

DIRECTORY = "code"  # subdirectory of the pod's own directory
VARIABLE = "BERTH_CODE_DIR"
BLOCK = 256 * 1024
# After a truncated response, the next attempt asks the server to check its files and report any error.
_VERIFY = "?verify=true"


class Download(Transfer):
    progress = "downloading the code"
    failure = "the code could not be downloaded"
    stopped = "stopped before its code had been downloaded"

    def run(self) -> str:
        try:
            return super().run()
        except OSError as error:
            return f"the code could not be unpacked: {error.strerror or error}"

    def prepare(self) -> None:
        import shutil  # imported on demand, because the import is slow

        shutil.rmtree(f"{self._directory}/work/{DIRECTORY}", ignore_errors=True)

    def transfer(self, output: int, is_broken: bool) -> None:
        work_fd = os.open(f"{self._directory}/work", os.O_RDONLY | os.O_DIRECTORY)
        # Import this before the process changes to a user who may be unable to read Python's files.
        import tarfile

        url = self._order["code_url"] + (_VERIFY if is_broken else "")
        response = open_url(url, self._secret, self._order["download_ca"])
        os.fchdir(work_fd)
        if uid := int(self._order.get("uid", "0")):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            die_with_parent()  # call this again, because changing the user resets the parent-death signal
        body = _Body(response, output)
        try:
            _unpack(body)
        except tarfile.TarError as error:
            raise TransferFailure(BROKEN, f"the archive is damaged: {error}") from error
        body.finish()

    def describe_error(self, reason: str) -> str:
        return f"it could not be unpacked: {reason}"


class _Body:
    """File-like HTTP response that reports the progress of the download."""

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
            raise TransferFailure(BROKEN, f"the connection was lost: {error!r}") from error
        self._read += len(data)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REPORT_SECONDS
            total = f" of {self._size / 1e6:.0f}" if self._size else ""
            send(self._output, PROGRESS, f"downloading the code: {self._read / 1e6:.0f}{total} MB")
        return data

    def finish(self) -> None:
        """Read the rest of the response. Raises TransferFailure if it is incomplete."""
        while self.read(BLOCK):
            pass
        if self._size and self._read != self._size:
            raise TransferFailure(BROKEN, "the connection was lost")


def _unpack(body: _Body) -> None:
    """Unpack the archive into a new directory. The server has already checked the links in it."""
    import tarfile

    os.umask(0o077)
    os.mkdir(DIRECTORY, 0o700)
    os.chdir(DIRECTORY)
    with tarfile.open(fileobj=body, mode="r|", bufsize=BLOCK) as archive:  # type: ignore[call-overload]
        for member in archive:
            name = member.name
            if name.startswith("/") or ".." in name.split("/"):
                raise TransferFailure(
                    FAILED,
                    f"the archive contains the unsafe path {name!r}; paths must be relative and without `..`",
                )
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
                raise TransferFailure(FAILED, f"the archive contains a special file, {name!r}")
