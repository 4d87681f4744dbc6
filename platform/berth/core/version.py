"""Version of the installed distribution, and the Python version that the server requires."""

import sys
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "berth-platform"


def installed_version(fallback: str = "unknown") -> str:
    """Return the installed version, or `fallback` if the distribution is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return fallback


def require_server_python() -> None:
    """Exit with status 2 and an error on stderr if this Python is too old for the server."""
    if sys.version_info < (3, 11):
        sys.stderr.write(
            "berth: The server needs Python 3.11 or newer. This is Python "
            f"{sys.version.split()[0]}. Install 'berth-platform[server]' with a newer Python.\n"
        )
        sys.exit(2)
