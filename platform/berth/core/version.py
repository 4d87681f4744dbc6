"""Version of the installed distribution, and the Python version that the server requires."""

import sys

DISTRIBUTION = "berth-platform"


def installed_version(fallback: str = "unknown") -> str:
    """Return the installed version, or `fallback` if the distribution is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return fallback


def require_server_python() -> None:
    """Exit with code 2 and an error on stderr if this Python is too old for the server."""
    if (error := server_python_error()) is not None:
        sys.stderr.write(f"berth: {error}\n")
        sys.exit(2)


def server_python_error() -> str | None:
    """Return why this Python cannot run the server, or None if it can."""
    if sys.version_info >= (3, 11):
        return None
    return (
        f"The server needs Python 3.11 or newer. This is Python {sys.version.split()[0]}. "
        "Install 'berth-platform[server]' with a newer Python."
    )
