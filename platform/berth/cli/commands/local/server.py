"""The `berth admin`, `berth up` and `berth version` commands."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import open_client
from berth.cli.printing.output import Output, OutputOption, print_fields, show_one
from berth.cli.printing.text import print_message
from berth.core.version import installed_version

if TYPE_CHECKING:
    from berth.server.backup.manifest import Manifest

admin_app = typer.Typer(no_args_is_help=True, help="Back up and restore Berth on the server's machine.")
BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="Backup file.")]
MIB = 1 << 20


@admin_app.command("backup")
def backup(
    *,
    file: BackupFile,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Include the keys stored in BERTH_HOME.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write a consistent backup of the database to one file. Berth can keep running.

    This runs pg_dump on the embedded database or DATABASE_URL. The backup does not include logs and
    workspaces of pods, environments, or (without --with-keys) the keys that sign sessions and encrypt
    secrets.

    \b
    berth admin backup /var/backups/berth.backup --force
    DATABASE_URL=postgres://berth@db.example.org/berth berth admin backup berth.backup
    """
    from berth.server.backup.take import take_backup

    with _report_backup_errors():
        backup_manifest = take_backup(file.absolute(), with_keys=with_keys, replace=force)
    show_one(backup_manifest, output, lambda _: _print_backup(file, backup_manifest))
    if not backup_manifest.files:
        print_message("the backup does not include the signing and encryption keys. Store them separately.")


@admin_app.command("verify")
def verify(*, file: BackupFile, output: OutputOption = Output.TABLE) -> None:
    """Verify a backup and show its contents.

    \b
    berth admin verify berth.backup
    """
    from berth.server.backup.archive import open_archive

    with _report_backup_errors(), open_archive(file.absolute()) as archive:
        manifest = archive.manifest
    show_one(manifest, output, lambda _: _print_backup(file, manifest))


@admin_app.command("restore")
def restore(
    *,
    file: BackupFile,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the current contents of the database.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the --force confirmation prompt.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Restore a backup into an empty database. With --force, replace an existing database.

    The restore is atomic. Stop Berth first. Its version must match the backup. After the next start, pods
    that no longer exist are marked as lost, their workloads are requeued, and unknown pods are stopped.

    \b
    berth admin restore berth.backup
    berth admin restore berth.backup --force
    """
    from berth.server.backup.restore import restore_backup

    if force and not yes:
        if not sys.stdin.isatty():
            raise InvalidInput(
                "admin restore --force requires confirmation. Run the command in a terminal, or add --yes."
            )
        typer.confirm("This deletes the current contents of the database. Continue?", abort=True, err=True)
    with _report_backup_errors():
        restored = restore_backup(file.absolute(), force=force)
    show_one(restored.manifest, output, lambda _: _print_backup(file, restored.manifest))
    if restored.written_keys:
        print_message(f"restored to BERTH_HOME: {', '.join(restored.written_keys)}")
    if restored.differing_keys:
        print_message(f"not changed in BERTH_HOME: {', '.join(restored.differing_keys)}")
    if not restored.same_key:
        print_message(
            "the secret key differs from the backup's key: users must sign in again, and "
            "secrets must be set again, unless BERTH_SECRET_KEY_FALLBACKS contains the old key"
        )


@contextmanager
def _report_backup_errors() -> Iterator[None]:
    from berth.server.backup.errors import BackupError

    try:
        yield
    except BackupError as error:
        print_message(error)
        raise typer.Exit(ExitCode.REJECTED) from None


def _print_backup(file: Path, manifest: "Manifest") -> None:
    counts = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in manifest.counts.items())
    print_fields(
        [
            ("File", str(file)),
            ("Created", f"{manifest.made_at} by Berth {manifest.version}"),
            ("Server", f"PostgreSQL {manifest.server // 10_000}"),
            ("Contents", counts),
            ("Keys", ", ".join(manifest.files) or "none"),
            ("Size", f"{manifest.size / MIB:.1f} MiB, SHA-256 {manifest.sha256}"),
        ]
    )


def up(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Port. Defaults to 8000 or the next free port.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Create a demo organization in an empty database.")
    ] = False,
) -> None:
    """Run Berth on this machine until Ctrl-C: database, web server, scheduler and task queue.

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
    """Print the version of this CLI.

    \b
    berth version --server
    """
    print(version_line())
    if server:
        with open_client() as client:
            print(f"{client.settings.address}: {client.whoami().username} is signed in")


def version_line() -> str:
    return f"berth {installed_version('from a checkout')}"
