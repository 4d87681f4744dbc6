"""Normalize and validate the addresses of inference engines.

Host names are resolved and checked when Berth calls an engine.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from django.conf import settings

from berth.core.problems import Problem, format_value
from projects.delivering.destination import ForbiddenAddress, embedded_ipv4
from projects.services.inference.rules import InvalidScaleRequest
from projects.serving.addresses import AddressPolicy, InvalidAddress, normalize, resolve_destination


def address_policy() -> AddressPolicy:
    """Return this installation's rules for inference engine addresses."""
    return AddressPolicy(tuple(settings.BERTH_SERVICE_NETWORKS), frozenset(settings.BERTH_OWN_PORTS))


def new_addresses(urls: Sequence[str]) -> tuple[str, ...]:
    """Return the normalized addresses of inference engines to add.

    Raises InvalidScaleRequest for invalid or forbidden addresses.
    """
    normalized_urls = addresses(urls)
    problems = [
        Problem(f"engine_urls[{number}]", "is not allowed as an engine", format_value(url), reason)
        for number, url in enumerate(normalized_urls)
        if (reason := _rejection_reason(url))
    ]
    if problems:
        raise InvalidScaleRequest(problems)
    return normalized_urls


def addresses(urls: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses, normalized and deduplicated.

    Raises InvalidScaleRequest if an address is invalid.
    """
    normalized_urls, problems = [], []
    for number, url in enumerate(urls):
        try:
            normalized_urls.append(normalize(url))
        except InvalidAddress as error:
            problems.append(
                Problem(
                    f"engine_urls[{number}]", "is not a valid engine address", format_value(url), str(error)
                )
            )
    if problems:
        raise InvalidScaleRequest(problems)
    return tuple(dict.fromkeys(normalized_urls))


def _rejection_reason(url: str) -> str:
    """Return why Berth must not connect to the IP address in the URL, or "" if it may.

    Host names are always accepted here, because they are not resolved yet.
    """
    host = (urlsplit(url).hostname or "").strip("[]")
    try:
        address = embedded_ipv4(ipaddress.ip_address(host))
        is_local = (
            address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
        )
        if is_local:
            resolve_destination(url, "", address_policy())
    except ForbiddenAddress as rejected:
        return f"another address: {rejected}"
    except (ValueError, OSError):
        return ""
    return ""
