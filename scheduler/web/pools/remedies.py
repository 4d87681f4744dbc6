"""Buttons for the remedies of a pool's diagnosis."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.urls import reverse

from pools.models import NodePool
from scheduler.reports.pool_findings import Finding, Fix


@dataclass(frozen=True, slots=True)
class Remedy:
    """Button that opens a page, or a form in a dialog."""

    label: str
    path: str
    in_dialog: bool


Build = Callable[[str, str], Remedy]  # arguments: pool name and node name


def _dialog_remedy(label: str, route: str, *arguments: str) -> Remedy:
    return Remedy(label, reverse(route, args=arguments), in_dialog=True)


def _page_remedy(label: str, route: str, *arguments: str, pool: str = "") -> Remedy:
    query = f"?pool={pool}" if pool else ""
    return Remedy(label, reverse(route, args=arguments) + query, in_dialog=False)


REMEDIES: Mapping[Fix, Build] = {
    Fix.RETRY: lambda pool, _: _dialog_remedy("Retry provisioning", "pool-step", pool, "retry"),
    Fix.RESUME: lambda pool, _: _dialog_remedy("Resume pool", "pool-step", pool, "resume"),
    Fix.MAXIMUM: lambda pool, _: _dialog_remedy("Raise maximum", "pool-settings", pool),
    Fix.SETTINGS: lambda pool, _: _dialog_remedy("Edit settings", "pool-settings", pool),
    Fix.UNCORDON: lambda _, node: _dialog_remedy(f"Uncordon {node}", "node-step", node, "uncordon"),
    Fix.NODE: lambda _, node: _page_remedy(f"Show {node}", "node", node),
    Fix.MACHINES: lambda pool, _: _page_remedy("Show machines", "pool-machines", pool),
    Fix.HOSTS: lambda pool, _: _page_remedy("Show hosts", "pool-ssh-hosts", pool),
    Fix.QUEUE: lambda pool, _: _page_remedy("Show queue", "queue", pool=pool),
    Fix.QUOTAS: lambda pool, _: _page_remedy("Edit quotas", "quotas", pool=pool),
}


def remedy_button(finding: Finding, pool: NodePool) -> Remedy | None:
    return REMEDIES[finding.fix](pool.name, finding.node) if finding.fix is not None else None
