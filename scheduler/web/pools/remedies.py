"""Buttons for remedies in a pool's diagnosis."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from berth.core.wording.words import format_count
from pools.models import NodePool
from scheduler.reports.pool_findings import Finding, RemedyForm


@dataclass(frozen=True, slots=True)
class Remedy:
    """Button that opens a page, or a form in a dialog."""

    label: str
    path: str
    in_dialog: bool


Build = Callable[[str], Remedy]  # function that builds a remedy from a pool name


def _dialog_remedy(label: str, route: str, *arguments: str) -> Remedy:
    return Remedy(label, reverse(route, args=arguments), in_dialog=True)


def _page_remedy(label: str, route: str, *arguments: str, **parameters: str) -> Remedy:
    query = f"?{urlencode(parameters)}" if parameters else ""
    return Remedy(label, reverse(route, args=arguments) + query, in_dialog=False)


REMEDIES: Mapping[RemedyForm, Build] = {
    RemedyForm.RETRY: lambda pool: _dialog_remedy("Retry provisioning", "pool-action", pool, "retry"),
    RemedyForm.RESUME: lambda pool: _dialog_remedy("Resume pool", "pool-action", pool, "resume"),
    RemedyForm.MAXIMUM: lambda pool: _dialog_remedy("Raise maximum", "pool-settings", pool),
    RemedyForm.SETTINGS: lambda pool: _dialog_remedy("Edit settings", "pool-settings", pool),
    RemedyForm.MACHINES: lambda pool: _page_remedy("Show machines", "pool-machines", pool),
    RemedyForm.HOSTS: lambda pool: _page_remedy("Show hosts", "pool-ssh-hosts", pool),
    RemedyForm.QUEUE: lambda pool: _page_remedy("Show queue", "queue", pool=pool),
    RemedyForm.IDLE: lambda pool: _page_remedy("Show workloads", "workloads", state="running", pool=pool),
    RemedyForm.QUOTAS: lambda pool: _page_remedy("Edit quotas", "quotas", pool=pool),
}


def remedy_buttons(finding: Finding, pool: NodePool) -> list[Remedy]:
    """Return the finding's buttons, the most useful first."""
    if finding.fix is None:
        return []
    if finding.fix not in (RemedyForm.UNCORDON, RemedyForm.NODES):
        return [REMEDIES[finding.fix](pool.name)]
    if len(finding.nodes) == 1:
        (node,) = finding.nodes
        if finding.fix is RemedyForm.UNCORDON:
            return [_dialog_remedy(f"Uncordon {node}", "node-action", node, "uncordon")]
        return [_page_remedy(f"Show {node}", "node", node)]
    count = format_count(len(finding.nodes), "node")
    query = urlencode({"finding": finding.name})
    show = Remedy(f"Show {count}", f"{reverse('node-pool', args=[pool.name])}?{query}#nodes", in_dialog=False)
    if finding.fix is RemedyForm.NODES:
        return [show]
    path = reverse("pool-nodes-action", args=[pool.name, "uncordon"]) + "?state=cordoned"
    return [Remedy(f"Uncordon {count}", path, in_dialog=True), show]
