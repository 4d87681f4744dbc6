"""Oldest version of PostgreSQL that Berth supports."""

OLDEST_VERSION = 15
REMEDY = "Upgrade the server, or unset DATABASE_URL to use the embedded database."


def version_problem(version: int) -> str:
    """Return why Berth cannot use a server of this major version, or an empty string if it can."""
    if version >= OLDEST_VERSION:
        return ""
    return f"PostgreSQL {version} at DATABASE_URL is too old. Berth needs version {OLDEST_VERSION} or newer."
