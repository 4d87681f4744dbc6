"""Arguments and options that several commands share, with shell completion."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from berth.client import Client

COMPLETIONS = 100
Names = Callable[[str], list[str]]


def workload_names(incomplete: str) -> list[str]:
    """Return live workloads as NAME, or as PROJECT/NAME if `incomplete` has a slash."""
    project, _, name = incomplete.rpartition("/")

    def fetch(client: "Client") -> list[str]:
        workloads = client.workloads.list(limit=COMPLETIONS, search=name or None, project=project or None)
        return [workload.handle if project else workload.name for workload in workloads]

    return _completions(fetch, incomplete)


def service_names(incomplete: str) -> list[str]:
    project, _, _ = incomplete.rpartition("/")

    def fetch(client: "Client") -> list[str]:
        services = client.services.list(project=project or None, ended=False)
        return [f"{service.project}/{service.name}" if project else service.name for service in services]

    return _completions(fetch, incomplete)


def _names_from(word: str, of: str) -> Names:
    def names(incomplete: str) -> list[str]:
        return _completions(lambda client: [each.name for each in getattr(client, of).list()], incomplete)

    names.__name__ = f"{word}_names"
    return names


pool_names = _names_from("pool", "node_pools")
node_names = _names_from("node", "nodes")
project_names = _names_from("project", "projects")
department_names = _names_from("department", "departments")


def owner_names(incomplete: str) -> list[str]:
    return sorted({*project_names(incomplete), *department_names(incomplete)})


def context_names(incomplete: str) -> list[str]:
    from berth.client.config import BadSettings, read_contexts, settings_path

    try:
        return [name for name in read_contexts(settings_path()).servers if name.startswith(incomplete)]
    except BadSettings:
        return []


def _completions(fetch: Callable[["Client"], Iterable[str]], incomplete: str) -> list[str]:
    from berth.client import Client, ClientError
    from berth.client.config import BadSettings
    from berth.client.retry import RetryPolicy

    try:
        with Client(retry_policy=RetryPolicy(attempts=1)) as client:
            names = list(fetch(client))
    except (ClientError, BadSettings):
        return []
    return sorted({name for name in names if name.startswith(incomplete)})[:COMPLETIONS]


WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD", help="Name, PROJECT/NAME or id of the workload.", autocompletion=workload_names
    ),
]
PoolArgument = Annotated[
    str, typer.Argument(metavar="POOL", help="Name of the pool.", autocompletion=pool_names)
]
SomePool = Annotated[
    str | None, typer.Argument(metavar="[POOL]", help="Node pool.", autocompletion=pool_names)
]
PoolOption = Annotated[str | None, typer.Option(help="Node pool.", autocompletion=pool_names)]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="Project.", autocompletion=project_names)
]
DepartmentOption = Annotated[str | None, typer.Option(help="Department.", autocompletion=department_names)]
OwnerArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Project, or department with --department.", autocompletion=owner_names
    ),
]


@contextmanager
def connected() -> Iterator["Client"]:
    from berth.client import Client  # slow to import, and not needed by `berth --help`

    with Client() as client:
        yield client


T = TypeVar("T", bound="DataclassInstance")


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Return a decorator that makes the fields of the dataclass `kind` the options of a command, in order."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field.default, field.default_factory),
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]

    def wrap(command: Callable[[T], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            command(kind(**values))

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = hints
        cast("Any", run).__signature__ = inspect.Signature(parameters)
        return run

    return wrap


def _default(value: Any, factory: Any) -> Any:
    if value is not MISSING:
        return value
    return factory() if factory is not MISSING else inspect.Parameter.empty
