"""Validate the settings of pools and convert them to JSON for the audit log."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError

from berth.core.errors import Invalid
from berth.core.idle_rule import normalize_rule
from berth.core.problems import Problem, format_value, suggest
from berth.core.spec.values.texts import NAME, NAME_ALLOWED
from pools import budgets
from pools.buckets.logins import check_volume_logins
from pools.engine.image_policy import ALLOW, FORBID, REQUIRE, normalize_policy, read_policy
from pools.engine.node_spec import NodeSpec, parse_node_spec
from pools.engine.pod_limits import normalize_default_limits
from pools.engine.volumes import normalize_volumes
from pools.gpu_models import group_model_problems
from pools.models import NodePool, QuotaGroup
from pools.providers.settings import check_settings
from pools.runtimes.capabilities import check_runtime, runtime_capabilities
from pools.services.access.kubernetes import check_credentials, set_kubeconfig
from pools.services.access.slurm import (
    check_slurm_token,
    drop_token_if_endpoint_changed,
    set_slurm_token,
    token_endpoint,
)
from pools.services.allowed_backends import check_fakes_are_allowed

EDITABLE = frozenset(
    field.name for field in NodePool._meta.concrete_fields if field.editable and not field.primary_key
) - {"name", "nodes_desired", "paused"}
NAME_MAX = 40
# Function that stores each encrypted credential. The column names differ.
CREDENTIALS: Mapping[str, Callable[[NodePool, str | None], None]] = {
    "kubeconfig": set_kubeconfig, "slurm_token": set_slurm_token,
}  # fmt: skip
NODE_SPEC_KEYS = {"nodes_min": "min", "ready_threshold": "desired", "nodes_max": "max"}


def apply_values(pool: NodePool, values: Mapping[str, Any]) -> NodePool:
    """Set the pool's fields without saving the pool. Raises Invalid.

    `nodes` sets the minimum, the ready threshold and the maximum.
    """
    fields = dict(values)
    if "nodes" in fields:
        if conflicting := sorted(fields.keys() & NODE_SPEC_KEYS):
            raise Invalid(
                Problem(name, "conflicts with nodes", allowed="either nodes or this field")
                for name in conflicting
            )
        spec = parse_node_spec(fields.pop("nodes"))
        fields |= {"nodes_min": spec.min, "ready_threshold": spec.desired, "nodes_max": spec.max}
    unknown = sorted(set(fields) - EDITABLE - CREDENTIALS.keys())
    if unknown:
        raise Invalid(
            Problem(name, "cannot be set", allowed=suggest(name, sorted(EDITABLE | {"nodes"})))
            for name in unknown
        )
    check_fakes_are_allowed(pool, fields)
    credentials = {name: fields.pop(name) for name in CREDENTIALS if name in fields}
    problems = _normalize_documents(pool, fields)
    endpoint = token_endpoint(pool)
    for name, value in fields.items():
        setattr(pool, name, value)
    rejected = collect_problems(_set_credentials, pool, credentials, endpoint)
    problems += rejected
    if "gpu_model" in fields:
        problems += group_model_problems(pool)
    with _rename_problem_fields(values):
        reported = {*rejected, *(each.path.partition(".")[0] for each in rejected)}
        others = collect_problems(check_pool, pool)
        problems += [each for each in others if each not in reported and each.path not in reported]
        if problems:
            raise Invalid(problems)
    return pool


def _normalize_documents(pool: NodePool, fields: dict[str, Any]) -> list[Problem]:
    """Convert structured fields to the stored format. Remove invalid ones and return their problems."""
    is_kubernetes = fields.get("runtime", pool.runtime) == NodePool.Runtime.KUBERNETES

    def volumes(value: object) -> list[dict[str, Any]]:
        normalized = normalize_volumes(value, is_kubernetes=is_kubernetes)
        check_volume_logins(pool, normalized)
        return normalized

    documents: dict[str, Callable[[Any], Any]] = {
        "disruption_budgets": budgets.normalize_budgets, "image_policy": normalize_policy,
        "idle_rule": normalize_rule, "volumes": volumes, "default_limits": normalize_default_limits,
    }  # fmt: skip
    problems: list[Problem] = []
    for name, normalize in documents.items():
        if name in fields:
            try:
                fields[name] = normalize(fields[name])
            except Invalid as error:
                problems += error.problems
                del fields[name]
    return problems


def _set_credentials(
    pool: NodePool, credentials: Mapping[str, str | None], endpoint: tuple[Any, Any]
) -> None:
    for name, credential in sorted(credentials.items()):
        CREDENTIALS[name](pool, credential)
    if "slurm_token" not in credentials:
        drop_token_if_endpoint_changed(pool, endpoint)


@contextmanager
def _rename_problem_fields(values: Mapping[str, Any]) -> Iterator[None]:
    """Use the caller's field names in problems, such as nodes_max instead of nodes.max."""
    try:
        yield
    except Invalid as error:
        if "nodes" in values:
            raise
        columns = {f"nodes.{part}": column for column, part in NODE_SPEC_KEYS.items()}
        problems = [
            replace(problem, path=columns.get(problem.path, problem.path)) for problem in error.problems
        ]
        raise Invalid(problems) from None


def check_pool(pool: NodePool) -> None:
    misnamed = list(_name_problems(pool))
    miscounted = collect_problems(pool_node_spec, pool)
    misconfigured = [
        *collect_problems(check_settings, pool.provider, pool.provider_settings, pool.boot_timeout),
        *collect_problems(check_runtime, pool.provider, pool.runtime),
    ]
    if misconfigured:  # the other checks depend on these values
        raise Invalid([*misnamed, *miscounted, *misconfigured])
    check_credentials(pool)
    check_slurm_token(pool)
    problems = [
        *misnamed,
        *miscounted,
        *_label_problems(pool.labels),
        *_taint_problems(pool.taints),
        *_topology_problems(pool.topology),
        *_image_policy_problems(pool),
    ]
    # `nodes_desired` is not checked, because the caller limits it to the allowed range before saving.
    excluded = ["labels", "taints", "topology", "nodes_desired", *(problem.path for problem in misnamed)]
    excluded += NODE_SPEC_KEYS if miscounted else ()
    try:
        pool.full_clean(exclude=excluded, validate_constraints=True)
    except ValidationError as error:
        problems += [
            Problem("" if field == "__all__" else field, "; ".join(messages), _displayed_value(pool, field))
            for field, messages in sorted(error.message_dict.items())
        ]
    if problems:
        raise Invalid(problems)


def collect_problems(check: Callable[..., object], *arguments: Any) -> Sequence[Problem]:
    """Run the check, and return the problems that it raises."""
    try:
        check(*arguments)
    except Invalid as error:
        return error.problems
    return ()


def _name_problems(pool: NodePool) -> Iterator[Problem]:
    """Yield a problem if the new name is invalid or is the name of a quota group."""
    if pool._state.adding and not (NAME.fullmatch(pool.name) and len(pool.name) <= NAME_MAX):
        yield Problem(
            "name", "is not a valid name", format_value(pool.name), NAME_ALLOWED.replace("63", str(NAME_MAX))
        )
    elif pool._state.adding and QuotaGroup.objects.filter(name=pool.name).exists():
        yield Problem("name", "is already used by a quota group", format_value(pool.name), "another name")


def pool_node_spec(pool: NodePool) -> NodeSpec:
    return NodeSpec(pool.nodes_min, pool.nodes_max, pool.ready_threshold)


def pool_settings(pool: NodePool) -> dict[str, Any]:
    """Return all settings of a pool as JSON values."""
    names = sorted(EDITABLE | {"name", "nodes_desired", "paused"})
    settings = {name: _to_json(getattr(pool, name)) for name in names}
    for name in sorted(CREDENTIALS):
        if sealed := getattr(pool, f"{name}_sealed"):
            # Ciphertexts differ even for equal credentials, so the audit log shows every change.
            settings[name] = f"set ({hashlib.sha256(sealed.encode()).hexdigest()[:8]})"
    return settings


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _displayed_value(pool: NodePool, field: str) -> str:
    return format_value(getattr(pool, field)) if hasattr(pool, field) else ""


def _label_problems(labels: object) -> list[Problem]:
    if isinstance(labels, dict) and all(isinstance(x, str) for pair in labels.items() for x in pair):
        return []
    return [Problem("labels", "is not a mapping of names to strings", format_value(labels))]


def _taint_problems(taints: object) -> list[Problem]:
    if not isinstance(taints, list):
        return [Problem("taints", "is not a list", format_value(taints))]
    return [
        Problem(
            f"taints[{index}]",
            "is not a valid taint",
            format_value(taint),
            "key, value and effect as strings",
        )
        for index, taint in enumerate(taints)
        if not _is_taint(taint)
    ]


def _is_taint(taint: object) -> bool:
    return (
        isinstance(taint, dict)
        and bool(taint.get("key"))
        and taint.keys() <= {"key", "value", "effect"}
        and all(isinstance(value, str) for value in taint.values())
    )


def _image_policy_problems(pool: NodePool) -> Iterator[Problem]:
    """Yield a problem if the pool would reject all workloads."""
    mode, requires_images = (
        read_policy(pool.image_policy).mode,
        runtime_capabilities(pool.runtime).requires_images,
    )
    if mode == FORBID and requires_images:
        message = "is not allowed: the pool's runtime only runs workloads with a container image"
        yield Problem("image_policy.mode", message, format_value(FORBID), f"{ALLOW} or {REQUIRE}")
    if not pool.plugins and not pool.environment:
        return
    if requires_images:
        field = "plugins" if pool.plugins else "environment"
        message = "is not supported by the pool's runtime, whose workloads run in container images"
        yield Problem(field, message, "", "nothing")
    elif mode == REQUIRE:
        message = "cannot be combined with plugins or packages, which do not work inside a container image"
        yield Problem("image_policy.mode", message, format_value(REQUIRE), f"{ALLOW} or {FORBID}")


def _topology_problems(levels: object) -> list[Problem]:
    if isinstance(levels, list) and all(isinstance(level, str) and level for level in levels):
        return []
    return [Problem("topology", "is not a list of label keys", format_value(levels))]
