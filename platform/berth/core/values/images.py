"""Container image references and pull policies."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from berth.core.problems import SUGGESTION, Problem, format_value

PullPolicyName = Literal["if_not_present", "always", "never"]
PULL_POLICIES: tuple[str, ...] = get_args(PullPolicyName)

DEFAULT_TAG = "latest"
REFERENCE_MAX, PORT_MAX = 512, 65_535
ALLOWED = "REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST, for example docker.io/library/python:3.12"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_REGISTRY = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:]+\])(?::(?P<port>[1-9][0-9]{{0,4}}))?", re.ASCII
)
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class ImageError(ValueError):
    """Raised for an invalid image reference.

    `allowed` is the nearest valid reference, or the required form.
    """

    def __init__(self, message: str, allowed: str = ALLOWED) -> None:
        super().__init__(message)
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Image in a registry. At least one of `tag` and `digest` is set, and a digest takes precedence."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Reference without its tag and digest, for example docker.io/library/python."""
        return f"{self.registry}/{self.repository}"

    def with_digest(self, digest: str) -> str:
        """Return the reference with the given digest and without a tag."""
        return f"{self.name}@{digest}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}@{self.digest}" if self.digest else f"{self.name}{tag}"


def parse_image(text: str) -> ImageReference:
    """Parse a reference. If it has neither a tag nor a digest, the tag is `latest`. Raises ImageError."""
    try:
        return _parse(text)
    except ImageError as error:
        nearest = _nearest_reference(text)
        raise ImageError(str(error), f"{SUGGESTION}`{nearest}`?" if nearest else ALLOWED) from None


def _parse(text: str) -> ImageReference:
    _check_characters(text)
    rest, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise ImageError(_digest_problem(digest))
    registry, repository, tag = _split_name(rest)
    return ImageReference(registry, repository, tag or ("" if digest else DEFAULT_TAG), digest)


def _check_characters(text: str) -> None:
    if not text.strip():
        raise ImageError("is empty")
    if len(text) > REFERENCE_MAX:
        raise ImageError("is too long", f"at most {REFERENCE_MAX} characters")
    if any(char.isspace() for char in text):
        raise ImageError("contains a space")
    if _SCHEME.match(text):
        raise ImageError("begins with a URL scheme")


def _split_name(text: str) -> tuple[str, str, str]:
    """Return the registry, the repository and the tag, which may be empty."""
    first, slash, path = text.partition("/")
    if not slash or not _looks_like_registry(first):
        raise ImageError("does not specify a registry")
    repository, colon, tag = path.partition(":")
    if (first + repository) != (first + repository).lower():
        raise ImageError("contains upper-case letters")
    match = _REGISTRY.fullmatch(first)
    if match is None or int(match["port"] or 1) > PORT_MAX:
        raise ImageError("has an invalid registry")
    if not _REPOSITORY.fullmatch(repository):
        raise ImageError("has an invalid repository name")
    if colon and not _TAG.fullmatch(tag):
        raise ImageError("has an invalid tag" if tag else "has an empty tag")
    return first, repository, tag


def _looks_like_registry(part: str) -> bool:
    """Return whether the part before the first slash is `localhost` or has a dot or port."""
    return part == "localhost" or any(char in part for char in ".:")


def _digest_problem(digest: str) -> str:
    algorithm, _, digits = digest.partition(":")
    if not digest:
        return "has an empty digest"
    if algorithm.lower() != "sha256":
        return "has a digest that is not sha256"
    if not re.fullmatch("[0-9A-Fa-f]*", digits):
        return "has a digest with characters other than hexadecimal digits"
    return (
        f"has a digest of {len(digits)} digits instead of 64"
        if len(digits) != 64
        else "has upper-case letters in its digest"
    )


def _nearest_reference(text: str) -> str:
    """Return the valid reference that the user most likely meant, or ""."""
    candidate = _SCHEME.sub("", "".join(text[:REFERENCE_MAX].split()), count=1)
    rest, _, digest = candidate.partition("@")
    first, slash, path = rest.partition("/")
    if not slash or not _looks_like_registry(first.lower()):
        first, path = "docker.io", rest if slash else f"library/{rest}"
    repository, colon, tag = path.partition(":")
    name = f"{first}/{repository}".lower()
    try:
        reference = _parse(
            name + (f":{tag}" if colon and tag else "") + (f"@{digest.lower()}" if digest else "")
        )
    except ImageError:
        return ""
    return str(reference)


def _validate_image(text: str) -> str:
    try:
        parse_image(text)
    except ImageError as error:
        context = {"message": str(error), "allowed": error.allowed}
        raise PydanticCustomError("image", "{message}", context) from None
    return text


def _validate_pull_policy(value: object) -> object:
    """Reject an unknown pull policy, and suggest the valid spelling for one such as IfNotPresent."""
    if isinstance(value, str) and value not in PULL_POLICIES:
        letters = re.sub("[-_ ]", "", value.lower())
        match = next((name for name in PULL_POLICIES if name.replace("_", "") == letters), "")
        allowed = f"{SUGGESTION}`{match}`?" if match else ", ".join(PULL_POLICIES)
        raise PydanticCustomError("pull_policy", "is not a valid pull policy", {"allowed": allowed})
    return value


Image = Annotated[str, Field(min_length=1), AfterValidator(_validate_image)]
PullPolicy = Annotated[PullPolicyName, BeforeValidator(_validate_pull_policy)]


def pull_policy_problems(image: str | None, policy: str) -> Iterator[Problem]:
    if image is None and policy != PULL_POLICIES[0]:
        yield Problem("image_pull_policy", "requires an image", format_value(policy), "image as well")
