"""Version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "berth-platform"


def installed_version(otherwise: str = "unknown") -> str:
    """Return the installed version, or `otherwise` for a checkout that is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return otherwise
