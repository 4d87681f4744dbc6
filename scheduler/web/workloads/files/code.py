"""Code of a workload's roles: commands, environment variables and secrets, without secret values."""

import shlex
from dataclasses import dataclass

from berth.core.errors import Invalid
from berth.core.spec import parse_workload
from projects.models import Workload


@dataclass(frozen=True, slots=True)
class RoleCommand:
    """Command of a role. `workspace` is the directory in which it starts."""

    name: str
    command: str
    workspace: str
    variables: list[tuple[str, str]]
    secrets: list[tuple[str, str]]


def role_commands(workload: Workload) -> list[RoleCommand]:
    """Return each role's command, with its directory, variables and secrets.

    The list is empty if the document is no longer valid.
    """
    try:
        spec = parse_workload(workload.spec)
    except Invalid:
        return []
    return [
        RoleCommand(
            role.name,
            command if isinstance(command, str) else shlex.join(command or ()),
            spec.role_workspace(role) or "",
            sorted(spec.role_env(role).items()),
            [(use.name, use.env or use.file or "") for use in spec.role_secrets(role)],
        )
        for role in spec.all_roles
        for command in [None if role.idle else role.command if role.command is not None else spec.command]
    ]
