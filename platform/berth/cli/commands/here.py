"""`berth up` and `berth version`."""

from typing import Annotated

import typer


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
        bool, typer.Option("--server", help="Ask the server whether it is there, too.")
    ] = False,
) -> None:
    """The version of this command.

    \b
    berth version --server
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        print(f"berth {version_of('berth')}")
    except PackageNotFoundError:
        print("berth from a checkout that is not installed")
    if server:
        from berth.cli.link import connected

        with connected() as client:
            print(f"{client.settings.address}: {client.whoami().username} is signed in")
