"""Version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "berth-platform"


def installed_version(fallback: str = "unknown") -> str:
    """Return the installed version, or `fallback` if the distribution is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return fallback
