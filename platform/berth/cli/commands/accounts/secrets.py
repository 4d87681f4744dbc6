"""The `berth secret` command. Secret values are never accepted as arguments or printed."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import open_client, pool_names, project_names
from berth.cli.printing.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.printing.text import format_short_time, format_time, print_message, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from berth.client import Client
    from berth.client.models.tenants import SecretUse, StoredSecret

app = typer.Typer(no_args_is_help=True, help="Manage project, pool and personal secrets.")
USES_SHOWN = 20  # maximum number of uses shown after setting a secret
SecretArgument = Annotated[str, typer.Argument(metavar="NAME", help="Secret name.")]
SecretProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project", "-p", metavar="NAME", autocompletion=project_names,
        help="Project. Defaults to BERTH_PROJECT or the context's project.",
    ),
]  # fmt: skip
SecretPoolOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Node pool that owns the secret, instead of a project.",
        autocompletion=pool_names,
    ),
]
PersonalOption = Annotated[
    bool, typer.Option("--personal", help="Use your personal secrets instead of a project's or pool's.")
]


@app.command("list")
def list_secrets(
    *,
    project: SecretProjectOption = None,
    pool: SecretPoolOption = None,
    personal: PersonalOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the secrets of a project or a pool, or your own, without their values.

    \b
    berth secret list -p vision
    berth secret list --pool train
    berth secret list --personal
    """
    columns = [
        Column("NAME", lambda s: s.name),
        Column("KIND", lambda s: s.kind),
        Column("REGISTRY", lambda s: s.registry or "-", flexible=True),
        Column("USER", lambda s: s.username or "-"),
        Column("VERSION", lambda s: str(s.version), right=True),
        Column(
            "UPDATED", lambda s: format_time(s.updated_at), brief=lambda s: format_short_time(s.updated_at)
        ),
        Column("BY", lambda s: s.updated_by),
    ]
    with open_client() as client:
        secrets = list(client.secrets.list(**_selected_owner(client, project, pool, personal=personal)))
    show_list(secrets, columns, output, "No secrets. Set one with `berth secret set NAME`.")


@app.command("set")
def set_secret(
    *,
    name: SecretArgument,
    project: SecretProjectOption = None,
    pool: SecretPoolOption = None,
    personal: PersonalOption = False,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="File that contains the value.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Container registry that accepts the value as a password."),
    ] = None,
    username: Annotated[
        str | None, typer.Option("--username", "-u", metavar="NAME", help="Username for --registry.")
    ] = None,
    ssh_key: Annotated[
        bool,
        typer.Option("--ssh-key", help="Private key for a pool's SSH hosts. Workloads cannot use the key."),
    ] = False,
    access_key_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Access key ID for a pool's S3 volumes. The value is the secret key.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create or replace a secret.

    The value is read from --file, from stdin (without the final line break) or from a prompt.

    \b
    berth secret set hf-token -p vision
    pass berth/hf-token | berth secret set hf-token -p vision
    berth secret set deploy-key -p vision --file id_ed25519
    berth secret set wandb-key --personal
    berth secret set registry --pool train --registry registry.example.org:5000 -u berth
    berth secret set ssh-key --pool metal --ssh-key --file ~/.ssh/berth
    berth secret set s3-reader --pool train --access-key-id AKIAIOSFODNN7EXAMPLE
    """
    if ssh_key and registry is not None:
        raise InvalidInput("secret set: --ssh-key cannot be combined with --registry. Use only one of them.")
    if access_key_id is not None and (ssh_key or registry is not None or personal):
        raise InvalidInput(
            "secret set: --access-key-id can only be combined with --pool and --file. Remove the other "
            "options."
        )
    if (registry is None) != (username is None):
        raise InvalidInput("secret set: use --registry and --username together")
    if personal and (ssh_key or registry is not None):
        raise InvalidInput(
            "secret set: --personal cannot be combined with --ssh-key or --registry. Use only one of them."
        )
    with open_client() as client:
        owner = _selected_owner(client, project, pool, personal=personal)
        label = "Value" if registry is None else "Password"
        value = _read_value(file, label if access_key_id is None else "Secret access key")
        stored: Any
        if ssh_key:
            stored = client.secrets.set_ssh_key(name, value, **owner)
        elif access_key_id is not None:
            stored = client.secrets.set_s3_key(name, access_key_id, value, **owner)
        elif registry is None or username is None:
            stored = client.secrets.set(name, value, **owner)
        else:
            stored = client.secrets.set_registry_credentials(name, registry, username, value, **owner)
        outdated = list(client.secrets.uses(name, outdated=True, limit=USES_SHOWN, **owner))
    show_one(stored, output, lambda secret: _print_result(secret, outdated))


@app.command("uses")
def list_uses(
    *,
    name: SecretArgument,
    project: SecretProjectOption = None,
    pool: SecretPoolOption = None,
    personal: PersonalOption = False,
    outdated: Annotated[
        bool,
        typer.Option("--outdated", help="Include only runs that still use an older version of the secret."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs to show.")] = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List workload runs that received a secret, newest first.

    \b
    berth secret uses hf-token -p vision
    berth secret uses hf-token -p vision --outdated
    """
    columns = [
        Column("WORKLOAD", lambda u: f"{u.project}/{u.name}", flexible=True),
        Column("RUN", lambda u: str(u.run), right=True),
        Column("VERSION", lambda u: str(u.version), right=True),
        Column("OUTDATED", lambda u: "yes" if u.outdated else "-"),
        Column("TIME", lambda u: format_time(u.at), brief=lambda u: format_short_time(u.at)),
    ]
    with open_client() as client:
        owner = _selected_owner(client, project, pool, personal=personal)
        uses = list(client.secrets.uses(name, outdated=outdated or None, limit=limit, **owner))
    show_list(uses, columns, output, "No uses.")


@app.command("delete")
def delete(
    *,
    name: SecretArgument,
    project: SecretProjectOption = None,
    pool: SecretPoolOption = None,
    personal: PersonalOption = False,
) -> None:
    """Delete a secret. Workloads that use the secret can no longer start; running pods keep the value.

    \b
    berth secret delete hf-token -p vision
    """
    with open_client() as client:
        client.secrets.delete(name, **_selected_owner(client, project, pool, personal=personal))
    print(printable(f"{name} deleted"))


def _print_result(secret: "StoredSecret", outdated: "Sequence[SecretUse]") -> None:
    action = "created" if secret.updated_at == secret.created_at else "replaced"
    print(printable(f"Secret {secret.name} {action} (version {secret.version})."))
    for warning in secret.warnings:
        print_message(f"warning: {warning}")
    if outdated:
        names = ", ".join(dict.fromkeys(f"{use.project}/{use.name}" for use in outdated))
        more = ", ..." if len(outdated) == USES_SHOWN else ""
        print(printable(f"Running with an older version until they start again: {names}{more}"))


def _selected_owner(
    client: "Client", project: str | None, pool: str | None, *, personal: bool
) -> dict[str, Any]:
    if personal:
        if project or pool:
            other = "--project" if project else "--pool"
            raise InvalidInput(f"--personal cannot be combined with {other}. Use only one of them.")
        return {"personal": True}
    if project and pool:
        raise InvalidInput("--project cannot be combined with --pool. Use only one of them.")
    if pool:
        return {"pool": pool}
    name = project or client.settings.project
    if not name:
        raise InvalidInput("--project is missing. Specify a project, or a pool with --pool.")
    return {"project": name}


def _read_value(file: str | None, label: str) -> str:
    try:
        if file is not None:
            value = Path(file).read_bytes().decode()
        elif sys.stdin.isatty():
            value = str(typer.prompt(label, hide_input=True, confirmation_prompt=True))
        else:
            value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InvalidInput(f"{file or 'stdin'} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput("the value is not UTF-8 text. Encode it, for example with base64.") from None
    if not value:
        raise InvalidInput("the value is empty. Pass a value with --file, on stdin or at the prompt.")
    return value
