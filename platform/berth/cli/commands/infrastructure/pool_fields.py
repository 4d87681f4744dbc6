"""Format the fields of a pool for `berth pool describe`."""

from typing import Any

from berth.cli.commands.infrastructure.nodes import format_free_gpus
from berth.cli.printing.text import format_number, format_pairs, format_time
from berth.core.wording.words import format_count


def format_state(pool: Any) -> str:
    return f"{pool.state}, {format_count(pool.nodes_desired, 'node')} desired, {_format_bounds(pool)}"


def _format_bounds(pool: Any) -> str:
    ready = "" if pool.ready_threshold is None else f", ready threshold {pool.ready_threshold}"
    fixed = pool.nodes_max is None
    return (f"{pool.nodes_min:,}, fixed" if fixed else f"{pool.nodes_min:,} to {pool.nodes_max:,}") + ready


def pool_fields(pool: Any, cost: Any, fragmentation: Any) -> list[tuple[str, str]]:
    fitting = [level for level in fragmentation.levels if level.gpus and level.replicas]
    declared = [plugin.name for plugin in pool.plugins] or (["none"] if pool.environment_digest else [])
    ready = f"{pool.nodes_ready:,} ready"
    fields = [
        ("Name", pool.name),
        ("Provider", f"{pool.provider} provider, {pool.runtime} runtime"),
        ("State", format_state(pool)),
        ("Nodes", f"{ready}, {pool.nodes_pending:,} booting, {pool.nodes_draining:,} draining"),
        ("Node size", f"{format_count(pool.gpus_per_node, 'GPU')} {pool.gpu_model}".strip()
         + f", {format_count(pool.cpu, 'core')}, {pool.memory_mib:,} MiB"),
        ("Isolation", pool.isolation or "not reported yet"),
        ("Default limits", _format_limits(pool.default_limits)),
        *(("Volume", _format_volume(volume)) for volume in pool.volumes or ()),
        *([("Idle rule", pool.idle_rule.text)] if pool.idle_rule else []),
        ("Workspaces", f"up to {pool.workspace_limit_mib:,} MiB"
         if pool.workspace_limit_mib else "unlimited"),
        ("Free GPUs", format_free_gpus(pool)),
        ("Largest gang", f"{fitting[-1].replicas:,} x {fitting[-1].gpus} GPUs"
         if fitting else "none fits on whole GPUs"),
        ("Cost", "no price set" if cost.per_hour is None else
         f"{format_number(cost.per_hour)} per hour now; "
         f"{format_number(cost.last_24_hours.cost)} in the last 24 hours, "
         f"{format_number(cost.last_30_days.cost)} in 30 days"),
    ]  # fmt: skip
    if pool.node_consolidation != "never" or pool.disruption_budgets:
        budgets = "; ".join(format_pairs(budget) for budget in pool.disruption_budgets) or "no budget"
        fields.insert(3, ("Consolidation", f"{pool.node_consolidation}; {budgets}"))
    if pool.image_policy.mode != "allow" or pool.image_policy.patterns:
        patterns = ", ".join(pool.image_policy.patterns)
        fields.append(("Images", pool.image_policy.mode + (f": {patterns}" if patterns else "")))
    if declared:
        fields.insert(5, ("Plugins", ", ".join(declared) + f"; environment {pool.environment_digest[:12]}"))
    return fields + _error_fields(pool)


def _format_volume(volume: Any) -> str:
    parts = [f"{volume.name} at {volume.source}", volume.access.replace("_", "-")]
    parts += [f"on nodes with {format_pairs(volume.nodes)}"] if volume.nodes else []
    parts += [f"endpoint {volume.endpoint}"] if volume.endpoint else []
    parts += [f"region {volume.region}"] if volume.region else []
    parts += [f"up to {volume.max_gib} GiB"] if volume.max_gib else []
    parts += [f"secret {volume.secret}"] if volume.secret else []
    return ", ".join([*parts, f"for {', '.join(volume.projects) or 'all projects'}"])


def _format_limits(limits: Any) -> str:
    memory = ["request"] if limits.memory_from_request else []
    memory += [f"{limits.memory_mib:,} MiB"] if limits.memory_mib else []
    cpu = ["request"] if limits.cpu_from_request else []
    cpu += [f"{format_number(limits.cpu)} cores"] if limits.cpu else []
    return f"memory {' or '.join(memory) or 'none'}, CPU {' or '.join(cpu) or 'none'}"


def _error_fields(pool: Any) -> list[tuple[str, str]]:
    fields = [("Last error", pool.last_error)] if pool.last_error else []
    if pool.boot_failures:
        limit = f" of {pool.boot_failure_limit}" if pool.boot_failure_limit else ""
        stopped = "; provisioning stopped" if pool.provisioning_stopped else ""
        after = "" if pool.boot_retry_at is None else f"; next attempt at {format_time(pool.boot_retry_at)}"
        fields.append(("Boots", f"{pool.boot_failures}{limit} failed in a row{stopped}{after}"))
    return fields
