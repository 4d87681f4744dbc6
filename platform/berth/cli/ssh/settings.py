"""Settings that connect the user's OpenSSH client to pods, stored next to Berth's own settings."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from berth.cli.exits import InvalidInput
from berth.cli.ssh.hosts import SUFFIX
from berth.core.wording.reasons import plain_reason

KEY_ALIAS = "berth"  # alias of all pods in known_hosts
KEY_TYPE = "ssh-ed25519"
_HEADER = "# Written by `berth ssh --config`, which replaces all changes.\n"


class SshFiles:
    """SSH files of the current user.

    All pods share one host key that never changes, so that `ssh` does not warn about unknown or changed keys.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.host_key = directory / "host_key"
        self.known_hosts = directory / "known_hosts"
        self.config = directory / "config"

    def prepare(self) -> None:
        """Create the host key and the known-hosts file if they are missing."""
        if self.host_key.is_file() and self.known_hosts.is_file():
            return
        import asyncssh  # slow import that is needed only once

        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.host_key.is_file():
            new = self.directory / f".host_key.{os.getpid()}"
            key = asyncssh.generate_private_key(KEY_TYPE)
            _write(new, key.export_private_key().decode())
            with suppress(FileExistsError):  # another process has already created the key
                os.link(new, self.host_key)
            new.unlink()
        public = asyncssh.read_private_key(self.host_key).export_public_key().decode()
        _replace(self.known_hosts, f"{KEY_ALIAS} {' '.join(public.split()[:2])}\n")

    def write_config(self) -> None:
        """Write the `ssh` settings for the host names of pods."""
        self.prepare()
        lines = [f"    {key} {value}\n" for key, value in self.options().items()]
        _replace(self.config, f'{_HEADER}Host *{SUFFIX} "!*\'*"\n{"".join(lines)}')

    def options(self) -> Mapping[str, str]:
        """Return the `ssh` options for pod host names."""
        command = " ".join(shlex.quote(part).replace("%", "%%") for part in own_command())
        return {
            "ProxyCommand": f"{command} ssh --stdio -- '%h'",
            "UserKnownHostsFile": '"' + str(self.known_hosts).replace("%", "%%") + '"',
            "HostKeyAlias": KEY_ALIAS,
            "HostKeyAlgorithms": KEY_TYPE,
            "StrictHostKeyChecking": "yes",
        }


def own_command() -> list[str]:
    """Return the command line that starts this `berth` program."""
    program = shutil.which(sys.argv[0])
    if program is not None and Path(program).name == "berth":
        return [str(Path(program).absolute())]
    return [sys.executable, "-m", "berth.cli.main"]


def include_in_user_config(config: Path, user_config: Path) -> bool:
    """Include `config` in the user's `ssh` settings.

    Return False if it was already included. Raises InvalidInput if the settings cannot be written.
    """
    line = f'Include "{config}"'
    try:
        text = user_config.read_text(encoding="utf-8") if user_config.exists() else ""
        if line in (each.strip() for each in text.splitlines()):
            return False
        user_config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = user_config.resolve()  # the file may be a link into a repository
        # Put the Include first, because below a Host line it would apply only to that host.
        _replace(
            target, f"{line}\n\n{text}", mode=target.stat().st_mode & 0o777 if target.exists() else 0o600
        )
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{user_config} cannot be changed: {plain_reason(error)}. "
            f"Add this line at the top of the file: {line}"
        ) from None
    return True


def _replace(path: Path, text: str, mode: int = 0o600) -> None:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    _write(new, text, mode)
    new.replace(path)


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
