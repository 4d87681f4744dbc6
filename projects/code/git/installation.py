"""Load the policy and the scratch directory for fetches from the installation's settings."""

from pathlib import Path

from django.conf import settings

from projects.code.git.policy import GitPolicy

MIB = 2**20


def git_policy() -> GitPolicy:
    return GitPolicy(
        hosts=frozenset(host.strip().lower() for host in settings.BERTH_GIT_HOSTS if host.strip()),
        known_hosts=Path(settings.BERTH_GIT_KNOWN_HOSTS),
        ca_file=Path(settings.BERTH_GIT_CA) if settings.BERTH_GIT_CA else None,
        seconds=settings.BERTH_GIT_SECONDS,
        transfer_size=settings.BERTH_GIT_MIB * MIB,
        size=settings.BERTH_CODE_MIB * MIB,
        files=settings.BERTH_CODE_FILES,
    )


def scratch_base() -> Path:
    """Return the directory for temporary files during fetches."""
    return Path(settings.BERTH_HOME) / "git"
