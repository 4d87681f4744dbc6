"""Arguments and options shared by several commands, with shell completion."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from berth.client import Client

COMPLETIONS_MAX = 100
NameCompleter = Callable[[str], list[str]]


def workload_names(incomplete: str) -> list[str]:
    """Return shell completions for live workloads: NAME, or PROJECT/NAME if `incomplete` contains a slash."""
    project, _, name = incomplete.rpartition("/")

    def fetch(client: "Client") -> list[str]:
        workloads = client.workloads.list(limit=COMPLETIONS_MAX, search=name or None, project=project or None)
        return [workload.handle if project else workload.name for workload in workloads]

    return _complete_names(fetch, incomplete)


def service_names(incomplete: str) -> list[str]:
    project, _, _ = incomplete.rpartition("/")

    def fetch(client: "Client") -> list[str]:
        services = client.services.list(project=project or None, ended=False)
        return [f"{service.project}/{service.name}" if project else service.name for service in services]

    return _complete_names(fetch, incomplete)


def _make_completer(kind: str, collection: str) -> NameCompleter:
    def names(incomplete: str) -> list[str]:
        return _complete_names(
            lambda client: [item.name for item in getattr(client, collection).list()], incomplete
        )

    names.__name__ = f"{kind}_names"
    return names


pool_names = _make_completer("pool", "node_pools")
node_names = _make_completer("node", "nodes")
quota_group_names = _make_completer("quota_group", "quota_groups")
project_names = _make_completer("project", "projects")
department_names = _make_completer("department", "departments")


def pool_and_group_names(incomplete: str) -> list[str]:
    return sorted({*pool_names(incomplete), *quota_group_names(incomplete)})


def owner_names(incomplete: str) -> list[str]:
    return sorted({*project_names(incomplete), *department_names(incomplete)})


def context_names(incomplete: str) -> list[str]:
    from berth.client.config import InvalidSettings, read_contexts, settings_path

    try:
        return [name for name in read_contexts(settings_path()).servers if name.startswith(incomplete)]
    except InvalidSettings:
        return []


def _complete_names(fetch: Callable[["Client"], Iterable[str]], incomplete: str) -> list[str]:
    from berth.client import Client, ClientError
    from berth.client.config import InvalidSettings
    from berth.client.retry import RetryPolicy

    try:
        with Client(retry_policy=RetryPolicy(attempts=1)) as client:
            names = list(fetch(client))
    except (ClientError, InvalidSettings):
        return []
    return sorted({name for name in names if name.startswith(incomplete)})[:COMPLETIONS_MAX]


WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD", help="Name, PROJECT/NAME or ID of the workload.", autocompletion=workload_names
    ),
]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Pool name.", autocompletion=pool_names)]
OptionalPoolArgument = Annotated[
    str | None, typer.Argument(metavar="[POOL]", help="Node pool.", autocompletion=pool_names)
]
PlaceOption = Annotated[
    str | None, typer.Option("--pool", help="Node pool or quota group.", autocompletion=pool_and_group_names)
]
PoolOption = Annotated[str | None, typer.Option(help="Node pool.", autocompletion=pool_names)]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="Project.", autocompletion=project_names)
]
IdleRuleOption = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=VALUE,..",
        help="Rule for workloads with idle GPUs: below=5%,after=1h,action=suspend,grace=30m,warmup=10m. "
        "Actions: warn, suspend, none. '' removes the rule.",
        show_default=False,
    ),
]
DepartmentOption = Annotated[str | None, typer.Option(help="Department.", autocompletion=department_names)]
OwnerArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Project, or department with --department.", autocompletion=owner_names
    ),
]


@contextmanager
def open_client() -> Iterator["Client"]:
    from berth.client import Client  # slow import that `berth --help` does not need

    with Client() as client:
        yield client


T = TypeVar("T", bound="DataclassInstance")


def with_options_from(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Return a decorator that adds the fields of the dataclass `kind` as options to a command."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_field_default(field.default, field.default_factory),
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


def _field_default(value: Any, factory: Any) -> Any:
    if value is not MISSING:
        return value
    return factory() if factory is not MISSING else inspect.Parameter.empty
