"""`berth admin`, `berth up` and `berth version`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.arguments import connected
from berth.cli.exits import BadInput, ExitCode
from berth.cli.output import Output, OutputOption, print_fields, show_one
from berth.cli.text import safe
from berth.core.version import installed_version

if TYPE_CHECKING:
    from berth.server.backup.manifest import Manifest

admin_app = typer.Typer(no_args_is_help=True, help="Backup and restore, on the machine where Berth runs.")
Target = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
MIB = 1 << 20


@admin_app.command("backup")
def backup(
    *,
    file: Target,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also the keys that Berth made and keeps in BERTH_HOME.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write all that Berth knows into one file, of one moment; Berth runs on meanwhile.

    It is made by pg_dump of the embedded database, or of DATABASE_URL's. Not in it: logs and workspaces of
    pods, environments, and (but for --with-keys) the keys that sign sessions and seal secrets of plugins.

    \b
    berth admin backup /var/backups/berth.backup --force
    DATABASE_URL=postgres://berth@db.example.org/berth berth admin backup berth.backup
    """
    from berth.server.backup.take import take

    with _told():
        made = take(file.absolute(), with_keys=with_keys, replace=force)
    show_one(made, output, lambda _: _tell(file, made))
    if not made.files:
        print("berth: the keys that sign and seal are not in it: keep them elsewhere, too", file=sys.stderr)


@admin_app.command("verify")
def verify(*, file: Target, output: OutputOption = Output.TABLE) -> None:
    """Read a backup to its end: is it whole, of when, and what is in it?

    \b
    berth admin verify berth.backup
    """
    from berth.server.backup.archive import opened

    with _told(), opened(file.absolute()) as kept:
        manifest = kept.manifest
    show_one(manifest, output, lambda _: _tell(file, manifest))


@admin_app.command("restore")
def restore(
    *,
    file: Target,
    force: Annotated[bool, typer.Option("--force", help="Replace all that is in the database now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --force: do not ask.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put a backup into an empty database, or with --force in the place of all that is there.

    Whole or not at all. Berth must be stopped, and of the version that made the backup. When it starts
    again, pods that are gone are found lost and their workloads wait for their turn; pods that no row knows
    of are stopped.

    \b
    berth admin restore berth.backup
    berth admin restore berth.backup --force
    """
    from berth.server.backup.put_back import put_back

    if force and not yes:
        if not sys.stdin.isatty():
            raise BadInput("admin restore --force: nobody can be asked here; allowed: --yes")
        typer.confirm("All that is in the database now goes. Go on?", abort=True, err=True)
    with _told():
        done = put_back(file.absolute(), force=force)
    show_one(done.manifest, output, lambda _: _tell(file, done.manifest))
    if done.keys_put:
        print(f"berth: put into BERTH_HOME: {', '.join(done.keys_put)}", file=sys.stderr)
    if done.keys_other:
        print(f"berth: left as they were in BERTH_HOME: {', '.join(done.keys_other)}", file=sys.stderr)
    if not done.same_key:
        print(
            "berth: the secret key here is another than then: people sign in anew, and secrets of plugins "
            "have to be given again, unless that key is put into BERTH_SECRET_KEY_FALLBACKS",
            file=sys.stderr,
        )


@contextmanager
def _told() -> Iterator[None]:
    from berth.server.backup.trouble import BackupTrouble

    try:
        yield
    except BackupTrouble as trouble:
        print(f"berth: {safe(trouble)}", file=sys.stderr)
        raise typer.Exit(ExitCode.REFUSED) from None


def _tell(file: Path, manifest: "Manifest") -> None:
    counts = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in manifest.counts.items())
    print_fields(
        [
            ("File", str(file)),
            ("Made", f"{manifest.made_at} by Berth {manifest.version}"),
            ("Server", f"PostgreSQL {manifest.server // 10_000}"),
            ("In it", counts),
            ("Keys", ", ".join(manifest.files) or "none"),
            ("Size", f"{manifest.size / MIB:.1f} MiB, SHA-256 {manifest.sha256}"),
        ]
    )


def up(
    *,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Default: 8000, or the next one that is free.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Make the demo organisation in an empty database.")
    ] = False,
) -> None:
    """Run Berth on this machine: database, web, scheduler and task queue, until Ctrl-C.

    \b
    berth up --demo
    DATABASE_URL=postgres://berth:secret@db.example.org/berth berth up --host 0.0.0.0 --port 80
    """
    from berth.server.up.start import up as run_until_stopped

    raise typer.Exit(run_until_stopped(host=host, port=port, demo=demo))


def version(
    server: Annotated[
        bool, typer.Option("--server", help="Also check the connection to the server.")
    ] = False,
) -> None:
    """Print the version of this command.

    \b
    berth version --server
    """
    print(version_line())
    if server:
        with connected() as client:
            print(f"{client.settings.address}: {client.whoami().username} is signed in")


def version_line() -> str:
    return f"berth {installed_version('from a checkout')}"
