"""Secrets of a pod: variables, files, and the secret for downloading its code and volumes.

The shim reads them from a record, on a tmpfs if possible, and deletes it. Files of an enclosed pod exist only
inside its enclosure.
"""

from __future__ import annotations

import os
import stat

from pools.runtimes.shim.records import decode, encode

INSIDE = "/run/secrets"  # directory that contains the secret files inside an enclosure
VARIABLE = "BERTH_SECRETS_DIR"
_RECORD, _FILES = "record", "files"


class Secrets:
    """Secrets of one pod. `home` is the path of their directory, or "" if the pod has no secrets."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.env: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.download = ""

    @property
    def files_directory(self) -> str:
        """Directory of secret files, for containers and for pods without an enclosure."""
        return f"{self.home}/{_FILES}"

    def store(self, env: dict[str, str], files: dict[str, str], download: str = "") -> None:
        """Write the secrets to disk. Raises OSError, for example if another user owns the directory."""
        _make_private(self.home)
        fields = [("env", f"{name}={value}") for name, value in env.items()]
        fields += [("file", f"{name}={content}") for name, content in files.items()]
        fields += [("download", download)] if download else []
        draft = f"{self.home}/{_RECORD}.{os.getpid()}.new"
        _write(draft, encode(fields), 0o600)
        os.rename(draft, f"{self.home}/{_RECORD}")

    def read_and_delete(self) -> str:
        """Read the pod's secrets from disk, and delete the file. Return an error message or ""."""
        if not self.home:
            return ""
        path = f"{self.home}/{_RECORD}"
        try:
            with open(path, "rb") as file:
                fields = decode(file.read())
            os.unlink(path)
        except FileNotFoundError:
            return "the pod's secrets are missing; another process has deleted them"
        self.download = "".join(value for key, value in fields if key == "download")
        for key, value in fields:
            if key == "download":
                continue
            name, _, text = value.partition("=")
            (self.env if key == "env" else self.files)[name] = text
        return ""

    def write_files(self, directory: str, uid: int) -> None:
        """Write the secret files, readable only by the pod's user.

        `uid` is that user, or 0 for this process's user.
        """
        if not self.files:
            return
        if not os.path.isdir(directory):  # enclosures already have this directory
            os.mkdir(directory)
            os.chmod(directory, 0o755)  # noqa: S103 - for the pod's user; the parent is private
        for name, content in self.files.items():
            path = f"{directory}/{name}"
            _write(path, content.encode("utf-8", "surrogateescape"), 0o400)
            if uid:
                os.chown(path, uid, uid)

    def forget(self) -> None:
        """Remove the secrets from this process's memory."""
        self.env, self.files, self.download = {}, {}, ""

    def delete(self) -> None:
        """Delete the directory and its contents."""
        if self.home:
            delete(self.home)


def delete(home: str) -> None:
    try:
        entries = list(os.scandir(home))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                delete(entry.path)
            else:
                os.unlink(entry.path)
        except FileNotFoundError:  # another process may delete the directory at the same time
            pass
    try:
        os.rmdir(home)
    except OSError:
        pass


def _make_private(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(1, f"{directory} is not a private directory of this user")


def _write(path: str, data: bytes, mode: int) -> None:
    try:
        os.unlink(path)  # a killed process may have left the file behind
    except FileNotFoundError:
        pass
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
