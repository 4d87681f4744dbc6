"""Ports that an interactive workload publishes through Berth."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from berth.core.problems import Problem, format_value
from berth.core.spec.roles import Document

PORTS_MAX = 8
LOWEST_PORT, HIGHEST_PORT = 1024, 65_535
NAME = re.compile(r"[a-z]([-a-z0-9]{0,13}[a-z0-9])?", re.ASCII)
NAME_ALLOWED = (
    "1 to 15 lowercase letters, digits and hyphens, starting with a letter, not ending with a hyphen"
)


def _validate_port_name(text: str) -> str:
    """Validate a port name, which becomes part of a host name and a variable name."""
    if not NAME.fullmatch(text):
        raise PydanticCustomError("name", "is not a valid port name", {"allowed": NAME_ALLOWED})
    return text


class PortSpec(Document):
    """Port on which the pod serves HTTP.

    If `port` is not set, Berth chooses a number and passes it in an environment variable.
    """

    name: Annotated[str, AfterValidator(_validate_port_name)]
    port: Annotated[int, Field(ge=LOWEST_PORT, le=HIGHEST_PORT)] | None = None


Ports = Annotated[tuple[PortSpec, ...], Field(max_length=PORTS_MAX, strict=False)]


def port_problems(ports: tuple[PortSpec, ...], kind: str) -> Iterator[Problem]:
    if ports and kind != "interactive":
        yield Problem("ports", "is only allowed for interactive workloads", kind, "kind: interactive")
    names = Counter(port.name for port in ports)
    numbers = Counter(port.port for port in ports if port.port is not None)
    for index, port in enumerate(ports):
        if names[port.name] > 1:
            yield Problem(f"ports[{index}].name", "is used twice", format_value(port.name), "unique names")
        if port.port is not None and numbers[port.port] > 1:
            yield Problem(f"ports[{index}].port", "is used twice", str(port.port), "unique numbers")


def port_variable(name: str) -> str:
    """Return the name of the environment variable that contains the port number."""
    return "BERTH_PORT_" + name.upper().replace("-", "_")
