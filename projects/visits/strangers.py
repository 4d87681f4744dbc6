"""Detect cross-site requests to port hosts.

Hosts of other workloads are of the same site to a browser: it sends cookies along with what they ask for.
"""

from collections.abc import Iterable

from projects.visits.headers import first_of

OWN = ("", "same-origin", "none")  # programs say nothing; `none`: typed in, or a bookmark


def is_a_strangers(headers: Iterable[tuple[bytes, bytes]], *, own: str, method: str, is_socket: bool) -> bool:
    given = list(headers)
    origin = first_of(given, b"origin")
    if origin:
        return origin.lower() != own
    site = first_of(given, b"sec-fetch-site").lower()
    if site in OWN:
        return False
    follows_a_link = first_of(given, b"sec-fetch-mode").lower() == "navigate" and method in ("GET", "HEAD")
    to_a_page = first_of(given, b"sec-fetch-dest").lower() == "document"
    return is_socket or not (follows_a_link and to_a_page)
