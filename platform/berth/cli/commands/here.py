"""Here we start Berth on this machine, and say which version this is."""

from typing import Annotated

import typer


def version(
    server: Annotated[
        bool, typer.Option("--server", help="Ask the server whether it is there, too.")
    ] = False,
) -> None:
    """The version of this command."""
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
