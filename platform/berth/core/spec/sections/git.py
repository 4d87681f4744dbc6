"""Git repositories with workload code: addresses, refs, and the document's section."""

import posixpath
import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from berth.core.backports import StrEnum
from berth.core.spec.roles import Document
from berth.core.spec.values.texts import Name, Text

URL_MAX, REF_MAX, KEY_MAX = 500, 255, 2000
HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?"
USER = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
PATH = r"[A-Za-z0-9._~/+%@:=,-]+"
WITH_SCHEME = re.compile(
    rf"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:(?P<user>[^@/]*)@)?(?P<host>{HOST}|\[[0-9A-Fa-f:.]+\])"
    rf"(?::(?P<port>[0-9]{{1,5}}))?/(?P<path>{PATH})",
    re.ASCII,
)
SHORT = re.compile(rf"(?:(?P<user>{USER})@)?(?P<host>{HOST}):(?P<path>{PATH})", re.ASCII)
URL_ALLOWED = "https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH"
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(://|::)")
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
REF_ALLOWED = "a branch or tag name, or the 40 or 64 digits of a commit hash"
HOST_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]{40,}={0,2}", re.ASCII
)
HOST_KEY_ALLOWED = (
    "the type and the key, for example ssh-ed25519 AAAA...; `ssh-keyscan HOST` prints both after the name"
)


class Transport(StrEnum):
    HTTPS = "https"
    SSH = "ssh"


class InvalidUrl(ValueError):
    """Raised for text that is not a repository URL.

    The message completes a sentence that begins with "URL".
    """


@dataclass(frozen=True, slots=True)
class GitAddress:
    """Parts of a repository's address. `is_short` is True for USER@HOST:PATH."""

    transport: Transport
    user: str
    host: str
    port: int | None
    path: str
    is_short: bool = False

    @property
    def effective_port(self) -> int:
        return self.port or (443 if self.transport is Transport.HTTPS else 22)

    @property
    def argument(self) -> str:
        """Repository address for the `git` program, without the username of an HTTPS address."""
        if self.is_short:
            return f"{self.user}@{self.host}:{self.path}"
        user = f"{self.user}@" if self.transport is Transport.SSH else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.transport.value}://{user}{host}{port}/{self.path}"


def parse_git_url(text: str) -> GitAddress:
    """Return the parts of a repository's address. Raises InvalidUrl."""
    if len(text) > URL_MAX:
        raise InvalidUrl(f"is longer than {URL_MAX} characters")
    scheme = SCHEME.match(text)
    if scheme is not None and (scheme[1] not in tuple(Transport) or scheme[2] == "::"):
        raise InvalidUrl(f"uses the protocol {scheme[1]}, which is not allowed")
    if scheme is None:
        return _parse_short(text)
    match = WITH_SCHEME.fullmatch(text)
    if match is None:
        raise InvalidUrl("is not a valid Git repository address")
    transport, user = Transport(match["scheme"]), match["user"] or ""
    if ":" in user:
        raise InvalidUrl("contains a password. Store it as a secret, and set `secret` to the secret's name")
    if match["user"] is not None and not re.fullmatch(USER, user, re.ASCII):
        raise InvalidUrl("contains an invalid username")
    if match["host"].startswith("[") and not _is_ipv6(match["host"].strip("[]")):
        raise InvalidUrl("contains an invalid IPv6 address")
    port = match["port"] and int(match["port"])
    if port is not None and not 0 < int(port) < 65536:
        raise InvalidUrl(f"has the invalid port {port}")
    return GitAddress(
        transport, user or "git", match["host"].strip("[]").lower(), port or None, match["path"]
    )


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _parse_short(text: str) -> GitAddress:
    match = SHORT.fullmatch(text)
    if match is None or match["path"].startswith("-") or "@" in match["path"]:
        raise InvalidUrl("is not a valid Git repository address")
    return GitAddress(
        Transport.SSH, match["user"] or "git", match["host"].lower(), None, match["path"], is_short=True
    )


def ref_problem(ref: str) -> str:
    """Return why text is not a valid branch or tag name, or "" if it is. See git-check-ref-format(1)."""
    parts = ref.split("/")
    is_valid = (
        bool(ref)
        and len(ref.encode(errors="replace")) <= REF_MAX
        and not re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{", ref)
        and not ref.startswith("-")
        and ref != "@"
        and not ref.endswith(".")
        and all(part and not part.startswith(".") and not part.endswith(".lock") for part in parts)
    )
    return "" if is_valid else "is not a valid branch, tag or commit"


def directory_problem(path: str) -> str:
    """Return why a path cannot be a directory in a repository, or an empty string if it can."""
    if (
        path.startswith(("/", "-", ":"))
        or posixpath.normpath(path) != path
        or path.split("/", maxsplit=1)[0] in ("..", ".")
    ):
        return "is not a normalized relative path"
    return ""


def _validate_url(text: str) -> str:
    try:
        parse_git_url(text)
    except InvalidUrl as error:
        # Do not repeat an address with a password, because responses, logs and pages would show it.
        raise PydanticCustomError(
            "git_url",
            "{message}",
            {"message": str(error), "allowed": URL_ALLOWED, "is_secret": "@" in text},
        ) from None
    return text


def _validate_ref(text: str) -> str:
    if message := ref_problem(text):
        raise PydanticCustomError("git_ref", "{message}", {"message": message, "allowed": REF_ALLOWED})
    return text


def _validate_directory(text: str) -> str:
    if message := directory_problem(text):
        allowed = "a directory of the repository, for example jobs/train"
        raise PydanticCustomError("git_directory", "{message}", {"message": message, "allowed": allowed})
    return text


def _validate_host_key(text: str) -> str:
    if HOST_KEY.fullmatch(text) is None:
        raise PydanticCustomError("host_key", "is not a valid public host key", {"allowed": HOST_KEY_ALLOWED})
    return text


class GitSpec(Document):
    """Git repository whose files each pod starts with.

    Berth resolves `ref` (by default the default branch) once. `secret` is a private key for SSH, or a token
    for HTTPS, and belongs to the submitter if `personal` is true. `host_key` may be omitted if an admin has
    stored it.
    """

    url: Annotated[Text, Field(min_length=1), AfterValidator(_validate_url)]
    ref: Annotated[Text, Field(min_length=1), AfterValidator(_validate_ref)] | None = None
    directory: (
        Annotated[Text, Field(min_length=1, max_length=1024), AfterValidator(_validate_directory)] | None
    ) = None
    secret: Name | None = None
    personal: bool = False
    host_key: Annotated[Text, Field(max_length=KEY_MAX), AfterValidator(_validate_host_key)] | None = None

    @property
    def address(self) -> GitAddress:
        return parse_git_url(self.url)

    @property
    def secret_label(self) -> str:
        """Secret name in the form that `--git-secret` accepts, or an empty string."""
        return f"personal/{self.secret}" if self.personal else self.secret or ""

    @model_validator(mode="after")
    def _validate_keys(self) -> "GitSpec":
        is_ssh = self.address.transport is Transport.SSH
        if is_ssh and self.secret is None:
            raise PydanticCustomError(
                "git_secret", "uses an SSH address without a key",
                {"allowed": "a secret with a private key in `secret`, or an https:// address"},
            )  # fmt: skip
        if not is_ssh and self.secret is None and "@" in self.url.partition("://")[2].partition("/")[0]:
            raise PydanticCustomError(
                "git_user", "has a username in `url`, but no `secret`",
                {"allowed": "https://HOST/PATH, or a secret with a token in `secret`", "is_secret": True},
            )  # fmt: skip
        if self.personal and self.secret is None:
            raise PydanticCustomError(
                "git_personal",
                "sets `personal`, but no `secret`",
                {"allowed": "the name of a personal secret"},
            )
        if self.host_key is not None and not is_ssh:
            raise PydanticCustomError(
                "git_host_key", "has a host key, which HTTPS does not use",
                {"allowed": "`host_key` with an SSH address"},
            )  # fmt: skip
        return self
