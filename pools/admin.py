"""Django admin pages for node pools, nodes, machines and secrets. All changes go through the services."""

from typing import Any

from django.contrib import admin
from django.forms import ModelForm
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.text import capfirst
from unfold.contrib.filters.admin import ChoicesDropdownFilter, RelatedDropdownFilter
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextInputWidget

from berth.server.web.admin_site.base import (
    PlatformModelAdmin,
    ReadOnlyModelAdmin,
    actor,
    bulk_action,
    render_json,
)
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import NO_VALUE, memory, thousandths
from pools import services
from pools.models import JoinToken, Machine, Node, NodePool, PoolSecret, ScalingEvent
from pools.services.allowed_backends import KINDS, form_choices
from pools.web.duration_field import DurationField

STATE_COLORS = {
    "ready": "success",
    "booting": "info",
    "requested": "info",
    "cordoned": "warning",
    "draining": "warning",
}
DURATIONS = (
    "autoscale_cooldown", "autoscale_idle_timeout", "reconcile_tick", "drain_timeout", "boot_timeout",
    "node_consolidation_after", "reclaim_min_runtime", "preempt_min_runtime", "preemption_delay",
    "reservation_after", "half_life", "window",
)  # fmt: skip


@admin.register(NodePool)
class NodePoolAdmin(PlatformModelAdmin):
    list_display = (
        "name",
        "provider",
        "runtime",
        "size",
        "nodes_desired",
        "node_shape",
        "state",
        "last_error",
    )
    columns = (
        "name", "provider", "runtime", "nodes_min", "nodes_max", "nodes_desired", "gpus_per_node",
        "gpu_model", "cpu_milli", "memory_mib", "price_per_gpu_hour", "paused", "last_error", "created_at",
    )  # fmt: skip
    list_filter = (("provider", ChoicesDropdownFilter), ("runtime", ChoicesDropdownFilter), "paused")
    search_fields = ("name", "gpu_model")
    search_help_text = "Name or GPU model"
    page_in_berth = "node-pools"
    readonly_fields = (
        "nodes_desired",
        "paused",
        "last_error",
        "boot_failures",
        "boot_retry_at",
        "last_scaled_at",
        "idle_since",
        "version",
        "created_at",
    )
    actions = ("pause", "resume", "retry")
    fieldsets = (
        ("Node pool", {"fields": ("name", "provider", "runtime", "provider_settings")}),
        ("Size", {"fields": ("nodes_min", "nodes_max", "ready_threshold", "expires_at")}),
        (
            "Nodes",
            {
                "fields": (
                    "gpus_per_node", "gpu_model", "gpu_memory_mib", "cpu_milli", "memory_mib", "max_pods",
                    "price_per_gpu_hour", "labels", "taints",
                )
            },
        ),
        (
            "Scaling and boots",
            {
                "fields": (
                    "autoscale_cooldown", "autoscale_idle_timeout", "reconcile_tick", "drain_timeout",
                    "boot_timeout", "boot_failure_limit", "node_consolidation", "node_consolidation_after",
                    "disruption_budgets",
                ),
                "classes": ("collapse",),
            },
        ),
        (
            "Software and limits",
            {
                "fields": (
                    "plugins", "environment", "image_policy", "volumes", "default_limits",
                    "workspace_limit_mib", "idle_rule",
                ),
                "classes": ("collapse",),
            },
        ),
        (
            "Scheduling",
            {
                "fields": (
                    "node_placement", "device_placement", "topology", "cpu_load_limit", "reservation_after",
                    "reclaim_min_runtime", "preempt_min_runtime", "preemption_delay", "stale_gang_grace",
                    "consolidation_enabled", "consolidation_max_moves", "consolidation_max_trials",
                ),
                "classes": ("collapse",),
            },
        ),
        (
            "Fair share",
            {
                "fields": (
                    "fairshare_mode", "half_life", "window", "tumbling_window", "k", "count_all",
                    "over_quota_weights",
                ),
                "classes": ("collapse",),
            },
        ),
        ("State", {"fields": readonly_fields}),
    )  # fmt: skip

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form field. Fields for durations accept units."""
        if db_field.name not in DURATIONS:
            return super().formfield_for_dbfield(db_field, request, **kwargs)
        return DurationField(
            label=capfirst(db_field.verbose_name),
            initial=db_field.default if db_field.has_default() else None,
            help_text=db_field.help_text,
            required=not db_field.blank,
            widget=UnfoldAdminTextInputWidget(attrs={"size": 10}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: NodePool | None = None) -> tuple[str, ...]:
        return (*self.readonly_fields, "name") if obj else self.readonly_fields

    def get_form(
        self, request: HttpRequest, obj: NodePool | None = None, change: bool = False, **kwargs: Any
    ) -> "type[ModelForm[NodePool]]":
        form = super().get_form(request, obj, change, **kwargs)
        for name in KINDS:
            field: Any = form.base_fields[name]
            field.choices = form_choices(name, getattr(obj, name, ""))
        return form

    def save_model(
        self, request: HttpRequest, obj: NodePool, form: "ModelForm[NodePool]", change: bool
    ) -> None:
        values = form.cleaned_data
        if change:
            changes = {name: values[name] for name in form.changed_data}
            services.edit_pool(actor=actor(request), pool=obj, changes=changes)
            return
        fields = {name: value for name, value in values.items() if name != "name"}
        obj.pk = services.create_pool(actor=actor(request), name=values["name"], **fields).pk

    def delete_model(self, request: HttpRequest, obj: NodePool) -> None:
        services.delete_pool(actor=actor(request), pool=obj)

    pause = bulk_action("Pause", "paused", lambda actor, pool: services.pause_pool(actor=actor, pool=pool))
    resume = bulk_action(
        "Resume", "resumed", lambda actor, pool: services.resume_pool(actor=actor, pool=pool)
    )
    retry = bulk_action(
        "Retry failed boots", "retried", lambda actor, pool: services.retry_pool(actor=actor, pool=pool)
    )

    def view_on_site(self, pool: NodePool) -> str:
        return reverse("node-pool", args=[pool.name])

    @display(description="State", label={"paused": "warning", "active": "success"}, ordering="paused")
    def state(self, pool: NodePool) -> str:
        return "paused" if pool.paused else "active"

    @display(description="Nodes")
    def size(self, pool: NodePool) -> str:
        return f"{pool.nodes_min} to {pool.nodes_max}" if pool.is_elastic else str(pool.nodes_min)

    @display(description="Node shape")
    def node_shape(self, pool: NodePool) -> str:
        return f"{pool.gpus_per_node} GPUs, {thousandths(pool.cpu_milli)} cores, {memory(pool.memory_mib)}"


@admin.register(Node)
class NodeAdmin(ReadOnlyModelAdmin):
    list_display = (
        "name",
        "pool",
        "state_label",
        "gpus",
        "isolation_level",
        "images",
        "address",
        "since",
        "ended_at",
    )
    list_filter = (
        ("pool", RelatedDropdownFilter),
        ("state", ChoicesDropdownFilter),
        ("since", TimeRangeFilter),
    )
    search_fields = ("name", "instance_id", "address")
    search_help_text = "Name, instance ID or address"
    page_in_berth = "node-pools"
    list_select_related = ("pool",)
    actions = ("cordon", "uncordon", "drain", "download")
    fieldsets = (
        (
            "Node",
            {"fields": ("name", "pool", "state", "since", "not_ready_reason", "instance_id", "address")},
        ),
        (
            "Resources",
            {
                "fields": (
                    "gpus", "gpu_model", "gpu_memory_mib", "cpu_milli", "memory_mib", "max_pods", "labels",
                    "taints", "devices",
                )
            },
        ),
        (
            "Times",
            {"fields": ("created_at", "joined_at", "prepared_at", "ready_at", "emptied_at", "ended_at")},
        ),
        (
            "Drain and interruption",
            {
                "fields": (
                    "drain_started_at", "drain_reason", "drained_by_scaling", "interruption_at",
                    "eviction_reason",
                ),
                "classes": ("collapse",),
            },
        ),
        (
            "Technical details",
            {
                "fields": (
                    "ordinal", "client_token", "queued", "obstacle", "foreign", "foreign_devices",
                    "environment", "phases", "isolation", "inventory", "upgrade_to",
                ),
                "classes": ("collapse",),
            },
        ),
    )  # fmt: skip

    def view_on_site(self, node: Node) -> str:
        return reverse("node", args=[node.name])

    @display(description="State", label=STATE_COLORS, ordering="state")
    def state_label(self, node: Node) -> str:
        return node.state

    @display(description="Images")
    def images(self, node: Node) -> str:
        return str((node.isolation or {}).get("images") or NO_VALUE)

    @display(description="Isolation")
    def isolation_level(self, node: Node) -> str:
        return str(node.isolation["level"]) if node.isolation else NO_VALUE

    cordon = bulk_action(
        "Cordon", "cordoned", lambda actor, node: services.cordon_node(actor=actor, node=node)
    )
    uncordon = bulk_action(
        "Uncordon", "ready", lambda actor, node: services.uncordon_node(actor=actor, node=node)
    )
    drain = bulk_action("Drain", "draining", lambda actor, node: services.drain_node(actor=actor, node=node))


@admin.register(ScalingEvent)
class ScalingEventAdmin(ReadOnlyModelAdmin):
    list_display = ("at", "pool", "kind", "node", "before", "after", "reason")
    list_display_links = ("pool",)
    list_filter = (
        ("pool", RelatedDropdownFilter),
        ("kind", ChoicesDropdownFilter),
        ("at", TimeRangeFilter),
    )
    search_fields = ("reason", "node__name")
    search_help_text = "Reason or node"
    list_select_related = ("pool", "node")
    readonly_fields = ("formatted_data",)
    fieldsets = (
        (
            "Scaling",
            {"fields": ("at", "pool", "kind", "node", "before", "after", "reason", "formatted_data")},
        ),
    )

    @display(description="Data")
    def formatted_data(self, row: ScalingEvent) -> Any:
        return render_json(row.data)


@admin.register(Machine)
class MachineAdmin(ReadOnlyModelAdmin):
    list_display = (
        "name",
        "pool",
        "address",
        "gpu_model",
        "joined_at",
        "last_seen_at",
        "removed_at",
        "departed_at",
    )
    list_filter = (
        ("pool", RelatedDropdownFilter),
        ("token_uses__token", RelatedDropdownFilter),
        ("joined_at", TimeRangeFilter),
    )
    search_fields = ("name", "address", "machine_id")
    search_help_text = "Name, address or machine ID"
    page_in_berth = "node-pools"
    list_select_related = ("pool",)
    actions = ("remove", "download")

    remove = bulk_action(
        "Remove from pool (drains the node first)",
        "removed, or draining",
        lambda actor, machine: services.remove_machine(actor=actor, machine=machine, at=timezone.now()),
    )


@admin.register(JoinToken)
class JoinTokenAdmin(ReadOnlyModelAdmin):
    list_display = (
        "prefix",
        "pool",
        "comment",
        "issued_by",
        "issued_at",
        "expires_at",
        "max_machines",
        "revoked_at",
    )
    list_filter = (("pool", RelatedDropdownFilter), ("issued_at", TimeRangeFilter))
    search_fields = ("prefix", "comment", "issued_by")
    search_help_text = "Prefix, comment or user"
    list_select_related = ("pool",)
    exclude = ("digest",)
    columns = (
        "prefix",
        "pool_id",
        "comment",
        "issued_by",
        "issued_at",
        "expires_at",
        "max_machines",
        "revoked_at",
    )
    actions = ("revoke", "download")

    revoke = bulk_action(
        "Revoke",
        "revoked",
        lambda actor, token: services.revoke_join_token(actor=actor, token=token, at=timezone.now()),
    )


class SecretAdmin(ReadOnlyModelAdmin):
    """Django admin for secrets. It does not show their values."""

    list_filter = (("kind", ChoicesDropdownFilter), ("updated_at", TimeRangeFilter))
    search_fields = ("name", "registry", "updated_by")
    search_help_text = "Name, registry or user"
    page_in_berth = "secrets"
    exclude = ("sealed",)


@admin.register(PoolSecret)
class PoolSecretAdmin(SecretAdmin):
    list_display = ("name", "pool", "kind", "registry", "username", "updated_at", "updated_by")
    list_select_related = ("pool",)
    columns = ("name", "pool_id", "kind", "registry", "username", "updated_at", "updated_by")
