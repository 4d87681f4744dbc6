"""Here we open the connection that a command works over, and offer names for the shell to complete."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from berth.client import Client

COMPLETIONS = 100


@contextmanager
def connected() -> Iterator["Client"]:
    """The client is imported here so that `berth --help` need not wait for it."""
    from berth.client import Client

    with Client() as client:
        yield client


def workload_names(incomplete: str) -> list[str]:
    """Live workloads for the shell; nothing at all rather than an error or a wait."""
    from berth.client import Client, ClientError
    from berth.client.config import BadSettings
    from berth.client.retry import Patience

    project, _, name = incomplete.rpartition("/")
    try:
        with Client(patience=Patience(attempts=1)) as client:
            found = list(
                client.workloads.list(limit=COMPLETIONS, search=name or None, project=project or None)
            )
    except (ClientError, BadSettings):
        return []
    handles = [workload.handle if project else workload.name for workload in found]
    return sorted({handle for handle in handles if handle.startswith(incomplete)})


WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD", help="NAME, PROJECT/NAME or the id of a workload.", autocompletion=workload_names
    ),
]
