"""Normalize and check engine addresses.

What a name leads to is looked up when it is called, and held to the same bounds again.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from django.conf import settings

from berth.core.problems import Problem, shown
from projects.delivering.destination import Refused, inner
from projects.services.inference.rules import BadScaling
from projects.serving.addresses import BadAddress, Reach, destination, normalised


def reach() -> Reach:
    """Whom this installation lets people name."""
    return Reach(tuple(settings.BERTH_SERVICE_NETWORKS), frozenset(settings.BERTH_OWN_PORTS))


def new_addresses(given: Sequence[str]) -> tuple[str, ...]:
    """Those of engines to come. Raises BadScaling with all that are none, or that Berth does not call."""
    found = addresses(given)
    problems = [
        Problem(f"engine_urls[{number}]", "is not called", shown(url), why)
        for number, url in enumerate(found)
        if (why := _refusal(url))
    ]
    if problems:
        raise BadScaling(problems)
    return found


def addresses(given: Sequence[str]) -> tuple[str, ...]:
    """Written in their one way, each once. Raises BadScaling with all that are none."""
    found, problems = [], []
    for number, url in enumerate(given):
        try:
            found.append(normalised(url))
        except BadAddress as error:
            problems.append(
                Problem(f"engine_urls[{number}]", "is no address of an engine", shown(url), str(error))
            )
    if problems:
        raise BadScaling(problems)
    return tuple(dict.fromkeys(found))


def _refusal(url: str) -> str:
    """Of this machine, the link and metadata, in numbers. Names are not looked up while somebody waits, and
    what else is not called shows when the engine is to be connected."""
    host = (urlsplit(url).hostname or "").strip("[]")
    try:
        address = inner(ipaddress.ip_address(host))
        near = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
        if near:
            destination(url, "", reach())
    except Refused as refused:
        return f"an address that may be called: {refused}"
    except (ValueError, OSError):
        return ""
    return ""
