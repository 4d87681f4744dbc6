"""Validation rules that involve the inference service section and other sections of the document."""

from collections.abc import Iterator

from berth.core.problems import Problem, format_value
from berth.core.spec.roles import RoleSpec
from berth.core.spec.workload import WorkloadSpec


def engine_role(spec: WorkloadSpec) -> RoleSpec | None:
    """Return the role that runs the inference engines.

    This is the service's `role` or, by default, the only role. Return None if there is no such role.
    """
    roles = spec.all_roles
    if spec.service is None:
        return None
    if spec.service.role is None:
        return roles[0] if len(roles) == 1 else None
    return next((role for role in roles if role.name == spec.service.role), None)


def service_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    service = spec.service
    if service is None:
        return
    if spec.kind != "service":
        yield Problem("service", "is only allowed for services", spec.kind, "kind: service")
    names = ", ".join(role.name for role in spec.all_roles)
    role = engine_role(spec)
    if role is None:
        message = "is missing" if service.role is None else "is not a role of the document"
        received = "" if service.role is None else format_value(service.role)
        yield Problem("service.role", message, received, names or "a role in the document")
    elif role.minimum != role.maximum:
        received = f"{role.minimum} to {role.maximum}"
        yield Problem("service.role", "names an elastic role", received,
                      "a role with fixed `replicas`; scale out to add engines")  # fmt: skip
    elif role.scale_with is not None:
        yield Problem(
            "service.role", "names a role with scale_with", role.scale_with.role, "a role without scale_with"
        )
    if service.router is not None and service.router.kind == "sglang" and service.router.url is None:
        yield Problem("service.router.url", "is missing", "", "the router's address")
    if service.weight_sync and service.engine != "sglang":
        yield Problem(
            "service.weight_sync", "is not supported by this kind of engine", service.engine, "engine: sglang"
        )
