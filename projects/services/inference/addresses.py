"""Normalize and check addresses of inference engines.

Host names are resolved when an engine is called, and their addresses are checked again at that time.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from django.conf import settings

from berth.core.problems import Problem, shown
from projects.delivering.destination import Refused, embedded_ipv4
from projects.services.inference.rules import BadScaling
from projects.serving.addresses import BadAddress, Reach, destination, normalize


def reach() -> Reach:
    """Return the networks and ports at which this installation's users may add engines."""
    return Reach(tuple(settings.BERTH_SERVICE_NETWORKS), frozenset(settings.BERTH_OWN_PORTS))


def new_addresses(urls: Sequence[str]) -> tuple[str, ...]:
    """Return normalized addresses of engines to add. Raises BadScaling for invalid or forbidden addresses."""
    normalised_urls = addresses(urls)
    problems = [
        Problem(f"engine_urls[{number}]", "is not allowed as an engine", shown(url), why)
        for number, url in enumerate(normalised_urls)
        if (why := _refusal_reason(url))
    ]
    if problems:
        raise BadScaling(problems)
    return normalised_urls


def addresses(urls: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses, normalized and without duplicates. Raises BadScaling for invalid addresses."""
    normalised_urls, problems = [], []
    for number, url in enumerate(urls):
        try:
            normalised_urls.append(normalize(url))
        except BadAddress as error:
            problems.append(
                Problem(f"engine_urls[{number}]", "is not an engine address", shown(url), str(error))
            )
    if problems:
        raise BadScaling(problems)
    return tuple(dict.fromkeys(normalised_urls))


def _refusal_reason(url: str) -> str:
    """Return the reason why a literal address must not be called, or an empty string.

    Only loopback, link-local, metadata and similar addresses are checked here. Host names are not resolved
    while a request waits. Other refusals appear when Berth connects to the engine.
    """
    host = (urlsplit(url).hostname or "").strip("[]")
    try:
        address = embedded_ipv4(ipaddress.ip_address(host))
        near = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
        if near:
            destination(url, "", reach())
    except Refused as refused:
        return f"another address: {refused}"
    except (ValueError, OSError):
        return ""
    return ""
