"""Post one message to one destination, without redirects or proxies."""

import http.client
from collections.abc import Mapping

from projects.delivering.destination import Destination
from projects.delivering.line import line

PATIENCE_SECONDS = 10.0
SHOWN = 200


class NotTaken(Exception):
    """It was not delivered; the text says what was answered. `for_good`: trying again is of no use."""

    def __init__(self, text: str, *, for_good: bool = False) -> None:
        super().__init__(text)
        self.for_good = for_good


def post(to: Destination, body: bytes, headers: Mapping[str, str]) -> None:
    """Raises NotTaken, OSError."""
    try:
        with line(to, PATIENCE_SECONDS) as visit:
            visit.request("POST", to.path, body, {**headers, "Content-Type": "application/json"})
            answer = visit.getresponse()
            told = readable(answer.read(SHOWN))
    except http.client.HTTPException as error:
        raise NotTaken(f"the answer cannot be read: {error!r}") from None
    if not 200 <= answer.status < 300:
        gone = answer.status == http.HTTPStatus.GONE
        raise NotTaken(f"answered {answer.status}: {told}".removesuffix(": "), for_good=gone)


def readable(answer: bytes) -> str:
    """On one line, without what hides in it: the database takes no NUL, a log no escapes."""
    text = answer.decode(errors="replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
