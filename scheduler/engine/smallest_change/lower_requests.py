"""Propose smaller requests for the pending workload: fewer replicas, or less of a resource per replica."""

from collections.abc import Callable, Iterator

from berth.core.values.amounts import MILLI
from scheduler.engine.model import Role
from scheduler.engine.smallest_change.change import Change, ChangeKind
from scheduler.engine.smallest_change.pending_case import PendingCase
from scheduler.engine.smallest_change.proposals import Proposals, propose_decreases, propose_halvings


def propose_requests_down_to_half(case: PendingCase) -> Iterator[Proposals]:
    """Propose lower requests that keep at least half of the current amount."""
    for role, resource, amount in _role_amounts(case):
        yield propose_decreases(
            amount, resource, _halve_rounding_up(amount), _lowered_request(role, resource, amount)
        )


def propose_requests_below_half(case: PendingCase) -> Iterator[Proposals]:
    """Propose lower requests down to one unit. The step size shrinks with the request."""
    for role, resource, amount in _role_amounts(case):
        yield propose_halvings(
            amount, resource, _halve_rounding_up(amount), _lowered_request(role, resource, amount)
        )


def _halve_rounding_up(amount: int) -> int:
    return -(-amount // 2)


def _lowered_request(role: Role, resource: str, amount: int) -> Callable[[int], Change]:
    return lambda after: Change(ChangeKind.REQUEST_LOWERED, role.name, resource, before=amount, after=after)


def _role_amounts(case: PendingCase) -> Iterator[tuple[Role, str, int]]:
    """Yield (role, resource, amount) for each amount that could be lowered."""
    for role in case.roles:
        if role.min > 1:
            yield role, "replicas", role.min
        request = role.request
        amounts = {
            "gpu": _gpu_amount(role),
            "gpu_memory_mib": ("gpu_memory_mib", request.gpu_memory_mib),
            "cpu": _limited_amount(case, "cpu", request.cpu, request.limit_cpu),
            "memory_mib": _limited_amount(case, "memory_mib", request.memory_mib, request.limit_memory_mib),
        }
        for short, (resource, amount) in amounts.items():
            if amount > 1 and short in case.short_resources:
                yield role, resource, amount


def _gpu_amount(role: Role) -> tuple[str, int]:
    return ("devices", role.request.devices) if role.request.gpu == MILLI else ("gpu", role.request.gpu)


def _limited_amount(case: PendingCase, resource: str, request: int, limit: int) -> tuple[str, int]:
    """Return the name and value of the amount to lower, which is either the limit or the request."""
    return (f"limit.{resource}", limit) if limit > request and case.capacity_may_help else (resource, request)
