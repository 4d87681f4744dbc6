"""Signals that pods can receive before SIGTERM."""

from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from berth.core.problems import suggest
from berth.core.values.signals import SIGNALS, full_signal_name

UNSUITABLE = {
    "SIGKILL": "cannot be handled by a program",
    "SIGTERM": "is always sent after the lead time",
    "SIGPIPE": "is sent by the kernel if a pipe breaks",
}
ALLOWED = "a signal that a program can handle, such as USR1"


def parse_notice_signal(value: object) -> str:
    """Parse a signal that pods receive before SIGTERM. Return its full name, such as SIGUSR1."""
    name = full_signal_name(value) if isinstance(value, str) else ""
    message, allowed = "is not a valid signal", ALLOWED
    if name in UNSUITABLE:
        message = UNSUITABLE[name]
    elif name in SIGNALS:
        return name
    elif isinstance(value, str):
        names = [*SIGNALS, *(each.removeprefix("SIG") for each in SIGNALS)]
        close = suggest(value, names)
        allowed = ALLOWED if close == ", ".join(names) else close
    raise PydanticCustomError("signal", "{message}", {"message": message, "allowed": allowed})


NoticeSignal = Annotated[
    str,
    PlainValidator(parse_notice_signal),
    WithJsonSchema({"type": "string", "description": ALLOWED, "examples": ["USR1"]}),
]
