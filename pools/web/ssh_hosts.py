"""Page where admins see a pool's SSH hosts and accept their host keys."""

from typing import Any

from django import forms
from django.db.models import Q
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.server.web.forms import Form
from berth.server.web.lists.tables import Column, list_query, requested_csv, table_state
from berth.server.web.pages import Request, confirm_page, page, signed_in, success_response
from pools.engine.ssh_hosts import HostState
from pools.models import NodePool, SshHost
from pools.providers.ssh.endpoint import fingerprint
from pools.services.ssh.hosts import accept_host_keys, displayed_state

TONES = {
    HostState.JOINED: "good", HostState.INSTALLING: "info", HostState.REMOVING: "warn",
    HostState.UNVERIFIED: "warn", HostState.SILENT: "bad", HostState.FAILING: "bad",
}  # fmt: skip
HostRow = tuple[SshHost, HostState]
HOSTS: tuple[Column[HostRow], ...] = (
    Column("name", "Host", lambda row: row[0].name, order="name"),
    Column("address", "Address", lambda row: row[0].address, is_csv_only=True),
    Column("state", "State", lambda row: row[1].value),
    Column("message", "Message", lambda row: row[0].message),
    Column("connected", "Last connection", lambda row: row[0].connected_at, order="connected_at"),
)


class _KeyForm(Form):
    """Form that accepts the host key shown on the page.

    If the host now presents a different key, none is pinned.
    """

    key = forms.CharField(widget=forms.HiddenInput)


@signed_in
@require_GET
def index(request: Request, name: str) -> HttpResponse | StreamingHttpResponse:
    pool, now = _get_pool(request, name), timezone.now()
    rows = SshHost.objects.filter(pool=pool).select_related("machine")
    for term in table_state(request.GET, "")["search"].split():
        rows = rows.filter(Q(name__icontains=term) | Q(address__icontains=term) | Q(message__icontains=term))
    listing = list_query(
        request, HOSTS, rows, lambda hosts: [(host, displayed_state(host, now)) for host in hosts],
        file_name=f"hosts-of-{pool.name}", default="name",
    )  # fmt: skip
    if file := requested_csv(request, listing):
        return file
    context = {
        "pool": pool,
        "listing": listing,
        "hosts": [(host, state, TONES.get(state, "")) for host, state in listing.rows],
    }
    return page(request, "pools/ssh_hosts.html", context, inner="pools/ssh_hosts_body.html")


@signed_in
@require_http_methods(["GET", "POST"])
def accept_host_key(request: Request, name: str, host: str) -> HttpResponse:
    pool = _get_pool(request, name)
    row = get_object_or_404(SshHost.objects.exclude(presented_key=""), pool=pool, name=host)
    is_changed = request.method == "POST" and request.POST.get("key") != row.presented_key
    if request.method == "POST" and not is_changed:
        accept_host_keys(actor=request.actor, pool=pool, keys={row.name: row.presented_key})
        return success_response(request, f"The key of {row.name} is pinned.", to=_hosts_url(pool))
    pinned = row.settings["host_key"]
    former = f" It replaces the pinned key {fingerprint(pinned)}." if pinned else ""
    return confirm_page(
        request,
        title=f"Pin the key of {row.name}?",
        warning=f"The host {'now presents' if is_changed else 'presented'} {fingerprint(row.presented_key)}."
        f"{former} Compare the fingerprint with that of the host first.",
        label="Pin key",
        danger=bool(pinned),
        back=_hosts_url(pool),
        form=_KeyForm(initial={"key": row.presented_key}),
    )


def _get_pool(request: Request, name: str) -> NodePool:
    pool: Any = get_object_or_404(NodePool, name=name, provider=NodePool.Provider.SSH)
    request.require("edit", pool)
    return pool


def _hosts_url(pool: NodePool) -> str:
    return reverse("pool-ssh-hosts", args=[pool.name])
