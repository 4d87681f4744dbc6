"""Guard changes with the version the client last saw (ETag, If-Match, If-None-Match)."""

from rest_framework.request import Request

from berth.core.errors import PreconditionFailed, PreconditionRequired


def etag(version: int) -> str:
    return f'"{version}"'


def expected_version(request: Request, present: int | None) -> int | None:
    """The version that a change must find: `present` is what is stored now, None if there is nothing.

    0 stands for "there must be none yet", None for "whatever there is" (`If-Match: *`).
    """
    match, none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if present is None:
        return _to_create(match, none_match)
    if none_match is not None:
        if none_match.strip() == "*" or etag(present) in _tags(none_match):
            raise PreconditionFailed("It exists already: read it, and send its ETag in If-Match.")
        if match is None:
            return present
    if match is None:
        raise PreconditionRequired("Send If-Match with the ETag that you have read.")
    if match.strip() == "*":
        return None
    if etag(present) not in _tags(match):
        raise PreconditionFailed("Somebody changed it since you read it: read it again.")
    return present


def named_version(request: Request, present: int) -> int | None:
    """For changes that may also be made blindly: the version in If-Match, if there is one."""
    match = request.headers.get("If-Match")
    if match is None or match.strip() == "*":
        return None
    if etag(present) not in _tags(match):
        raise PreconditionFailed("Somebody changed it since you read it: read it again.")
    return present


def _to_create(match: str | None, none_match: str | None) -> int:
    if match is not None:
        raise PreconditionFailed(
            "There is none yet: leave If-Match out, and send If-None-Match: * to create it."
        )
    if none_match is None:
        raise PreconditionRequired("There is none yet: send If-None-Match: * to create it.")
    return 0


def _tags(header: str) -> list[str]:
    """Strong tags only: `W/"3"` promises too little to change by."""
    return [tag.strip() for tag in header.split(",")]


def quoted(tag: str) -> str:
    return f'"{tag}"'


def expected_tag(request: Request) -> str | None:
    """For what has no version of its own: the tag that a preview gave; None for `*`, whatever there is."""
    match = request.headers.get("If-Match")
    if match is None:
        raise PreconditionRequired("Send If-Match with the ETag of a preview, or * to apply it blindly.")
    given = match.strip()
    return None if given == "*" else given.removeprefix('"').removesuffix('"')
