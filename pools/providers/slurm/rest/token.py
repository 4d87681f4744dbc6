"""Parse the JWT that authenticates a user to slurmrestd."""

import base64
import binascii
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

EXPIRES_SOON = timedelta(days=7)
LENGTH_MAX = 16 * 1024
ALLOWED = "a token as printed by `scontrol token`: three base64url parts separated by dots"
SlurmToken = Annotated[
    str | None,
    Field(
        max_length=LENGTH_MAX,
        repr=False,
        description="Token of the user of slurmrestd, for a Slurm pool with `rest_url`: the output of "
        "`scontrol token`. Stored encrypted and never shown.",
    ),
]
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)


def parse_token(text: str) -> str | None:
    """Return the JWT in the output of `scontrol token`, or in a file that contains only the JWT. Return None
    if there is none.
    """
    token = text.strip().removeprefix("SLURM_JWT=")
    return token if len(token) <= LENGTH_MAX and _JWT.fullmatch(token) else None


def token_expiry(token: str) -> datetime | None:
    """Return the token's expiry time, or None if it has none."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (binascii.Error, ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return None
