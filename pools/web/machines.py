"""Pages that manage joined machines and join tokens."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.values.amounts import MILLI
from berth.server.web.faults import form_errors
from berth.server.web.lists.tables import Column, list_query, list_rows, requested_csv, table_state
from berth.server.web.pages import Request, confirm_page, form_page, page, signed_in, success_response
from pools import joined_machines, selectors, services
from pools.models import NodePool
from pools.web.forms import JoinTokenForm, ReasonForm

TONES = {"free": "good", "used": "info", "open": "good", "draining": "warn", "silent": "bad"}

MAX_TOKENS = 500  # only the newest tokens are listed
MachineRow = tuple[Any, str]  # machine, and the name of its current node
MACHINES: tuple[Column[MachineRow], ...] = (
    Column("name", "Machine", lambda row: row[0].name, order="name"),
    Column("address", "Address", lambda row: row[0].address, is_csv_only=True),
    Column("state", "State", lambda row: row[0].state, order="state"),
    Column("node", "Node", lambda row: row[1]),
    Column("gpus", "Devices", lambda row: len(row[0].devices), "GPUs", number=True),
    Column("model", "Model", lambda row: row[0].gpu_model, is_csv_only=True),
    Column("cores", "CPU", lambda row: row[0].cpu_milli / MILLI, "cores", "cpu_milli", number=True),
    Column("memory", "Memory", lambda row: row[0].memory_mib, "MiB", "memory_mib", number=True),
    Column("os", "System", lambda row: row[0].inventory.get("os", ""), is_csv_only=True),
    Column("driver", "GPU driver", lambda row: row[0].inventory.get("gpu_driver", ""), is_csv_only=True),
    Column("agent", "Agent", lambda row: row[0].inventory.get("agent_version", ""), is_csv_only=True),
    Column("token", "Join token", lambda row: row[0].token_prefix or "", is_csv_only=True),
    Column("last_seen", "Last seen", lambda row: row[0].last_seen_at, order="last_seen_at"),
)
TOKENS: tuple[Column[Any], ...] = (
    Column("prefix", "Prefix", lambda row: row.prefix),
    Column("state", "State", lambda row: row.state),
    Column("comment", "Comment", lambda row: row.comment),
    Column("issued", "Issued", lambda row: row.issued_at),
    Column("by", "Issued by", lambda row: str(row.issued_by), is_csv_only=True),
    Column("expires", "Expires", lambda row: row.expires_at),
    Column("machines", "Machines joined", lambda row: row.machines_joined, number=True),
    Column("maximum", "Maximum", lambda row: row.max_machines, "machines", is_csv_only=True),
)


def _machine_rows(rows: list[Any]) -> list[MachineRow]:
    nodes = joined_machines.current_node_names(rows)
    return [(row, nodes.get(row.pk, "")) for row in rows]


@signed_in
@require_GET
def index(request: Request, name: str) -> HttpResponse | StreamingHttpResponse:
    pool, now = _get_pool(request, name), timezone.now()
    rows = joined_machines.machines(pool, now).filter(departed_at=None)
    for term in table_state(request.GET, "")["search"].split():
        rows = rows.filter(
            Q(name__icontains=term)
            | Q(address__icontains=term)
            | Q(state=term.lower())
            | Q(token_prefix=term)
        )
    listing = list_query(
        request, MACHINES, rows, _machine_rows, file_name=f"machines-of-{pool.name}", default="name"
    )
    tokens = list_rows(
        request, TOKENS, joined_machines.join_tokens(pool, now)[:MAX_TOKENS], name="tokens",
        file_name=f"join-tokens-of-{pool.name}", default="-issued",
    )  # fmt: skip
    if file := requested_csv(request, listing, tokens):
        return file
    context = {
        "pool": pool,
        "listing": listing,
        "machines": [(row, node, TONES.get(row.state, "")) for row, node in listing.rows],
        "tokens": tokens,
        "token_rows": [(row, TONES.get(row.state, "")) for row in tokens.rows],
    }
    return page(request, "pools/machines.html", context, inner="pools/machines_body.html")


@signed_in
@require_http_methods(["GET", "POST"])
def issue(request: Request, name: str) -> HttpResponse:
    pool = _get_pool(request, name)
    form = JoinTokenForm(request.POST or None, initial={"lasts": "3600", "machines": 1}, auto_id="join_%s")
    if request.method == "POST" and form.is_valid():
        lifetime = timedelta(seconds=int(form.cleaned_data["lasts"]))
        with form_errors(form, {"lifetime_seconds": "lasts", "max_machines": "machines"}):
            token, secret = services.issue_join_token(
                actor=request.actor, pool=pool, lifetime=lifetime, at=timezone.now(),
                machines=form.cleaned_data["machines"], comment=form.cleaned_data["comment"],
            )  # fmt: skip
            address = settings.BERTH_PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")
            context = {
                "pool": pool, "token": token, "secret": secret, "address": address,
                "back": _machines_url(pool),
            }  # fmt: skip
            return page(request, "pools/join_token.html", context, inner="pools/join_token_body.html")
    return form_page(
        request,
        form,
        title=f"New join token for {pool}",
        label="Issue token",
        text="The token lets this number of machines join the pool until it expires.",
        back=_machines_url(pool),
    )


@signed_in
@require_http_methods(["GET", "POST"])
def revoke(request: Request, name: str, token_id: int) -> HttpResponse:
    pool = _get_pool(request, name)
    tokens = joined_machines.join_tokens(pool, timezone.now()).filter(revoked_at=None)
    token = get_object_or_404(tokens, pk=token_id)
    if request.method == "POST":
        services.revoke_join_token(actor=request.actor, token=token, at=timezone.now())
        return success_response(request, f"Join token {token.prefix}... revoked.", to=_machines_url(pool))
    return confirm_page(
        request,
        title=f"Revoke join token {token.prefix}...?",
        warning="No other machine can join with this token. Machines that have joined stay in the pool.",
        label="Revoke token",
        danger=True,
        back=_machines_url(pool),
    )


@signed_in
@require_http_methods(["GET", "POST"])
def remove(request: Request, name: str, machine: str) -> HttpResponse:
    pool, now = _get_pool(request, name), timezone.now()
    target = get_object_or_404(joined_machines.machines(pool, now).filter(departed_at=None), name=machine)
    form = ReasonForm(request.POST or None, auto_id="machine_%s")
    if request.method == "POST" and form.is_valid():
        reason = form.cleaned_data["reason"]
        has_departed = services.remove_machine(actor=request.actor, machine=target, at=now, reason=reason)
        result_text = "was removed" if has_departed else "will be removed once its node is drained"
        return success_response(request, f"{target.name} {result_text}.", to=_machines_url(pool))
    node = (
        selectors.nodes().filter(name=joined_machines.current_node_names([target]).get(target.pk, "")).first()
    )
    return confirm_page(
        request,
        title=f"Remove {target.name}?",
        warning="Running pods may finish within the drain timeout; then the machine leaves the pool.",
        label="Remove machine",
        danger=True,
        form=form,
        names="Workloads to finish or move",
        work=selectors.workloads_on_nodes([node.pk])[node.pk] if node else (),
        back=_machines_url(pool),
    )


def _get_pool(request: Request, name: str) -> NodePool:
    pool = get_object_or_404(NodePool, name=name, provider=NodePool.Provider.STATIC)
    request.require("edit", pool)
    return pool


def _machines_url(pool: NodePool) -> str:
    return reverse("pool-machines", args=[pool.name])
