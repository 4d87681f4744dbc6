"""Settings of the admin site: title, colours and navigation."""

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy

# Shades of the primary colour and of grey, numbered as in django-unfold. Their values are in tokens.css.
# The last two greys are the surface and the background of the dark theme.
ACCENTS = {
    **dict.fromkeys(("50", "100", "200"), "var(--accent-soft)"),
    **dict.fromkeys(("300", "400", "500", "600"), "var(--accent)"),
    **dict.fromkeys(("700", "800", "900", "950"), "var(--accent-strong)"),
}
GREYS = {
    "50": "#f6f7f8", "100": "#eff1f3", "200": "#e2e6ea", "300": "#c9d0d7", "400": "#8b98a5", "500": "#5e6975",
    "600": "#4a5561", "700": "#39424c", "800": "#252b32", "900": "#14181c", "950": "#0d1013",
}  # fmt: skip
INK = {"subtle": "var(--ink-faint)", "default": "var(--ink-soft)", "important": "var(--ink)"}

# Sections of the navigation, with the title, icon and model of each entry.
SECTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Decisions": (
        ("Evictions", "swap_horiz", "scheduler_eviction"),
        ("Cycles", "cycle", "scheduler_cycle"),
        ("Pool scaling", "expand", "pools_scalingevent"),
        ("Service scaling", "stacked_line_chart", "projects_scaling"),
        ("Quota changes", "history", "projects_quotachange"),
        ("Audit", "fact_check", "projects_audit"),
        ("Events", "event_note", "projects_event"),
    ),
    "Quotas and shares": (
        ("Departments", "domain", "projects_department"),
        ("Projects", "folder", "projects_project"),
        ("Quotas", "pie_chart", "projects_quota"),
        ("Budgets", "savings", "projects_budget"),
        ("Fair shares", "balance", "scheduler_queuestatus"),
        ("Decayed usage", "trending_down", "scheduler_usage"),
        ("Hourly usage", "schedule", "scheduler_usagehour"),
    ),
    "Workloads": (
        ("Workloads", "deployed_code", "projects_workload"),
        ("Pods", "grid_view", "projects_pod"),
        ("Allocations", "memory", "scheduler_allocation"),
        ("Reservations", "bookmark", "scheduler_reservation"),
        ("Services", "dns", "projects_service"),
        ("Inference engines", "bolt", "projects_inferenceengine"),
        ("Scale requests", "tune", "projects_scalerequest"),
    ),
    "Capacity": (
        ("Node pools", "hub", "pools_nodepool"),
        ("Nodes", "storage", "pools_node"),
        ("Machines", "computer", "pools_machine"),
        ("Join tokens", "key", "pools_jointoken"),
    ),
    "Users and access": (
        ("Users", "person", "auth_user"),
        ("Roles", "badge", "projects_membership"),
        ("API tokens", "vpn_key", "projects_apitoken"),
        ("Project secrets", "lock", "projects_projectsecret"),
        ("Pool secrets", "lock", "pools_poolsecret"),
        ("Notification deliveries", "mail", "projects_delivery"),
    ),
    "Background tasks": (
        ("Queued", "pending", "django_q_ormq"),
        ("Failed", "error", "django_q_failure"),
        ("Done", "check_circle", "django_q_success"),
        ("Scheduled", "event_repeat", "django_q_schedule"),
    ),
}

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Berth",
    "SITE_HEADER": "Berth",
    "SITE_SUBHEADER": "Admin site",
    "SITE_URL": "/",
    "SITE_ICON": lambda request: static("berth/mark.svg"),
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("berth/mark.svg")}
    ],
    "SHOW_VIEW_ON_SITE": True,
    "STYLES": [
        lambda request: static("berth/css/fonts.css"),
        lambda request: static("berth/css/tokens.css"),
        lambda request: static("berth/css/admin.css"),
        lambda request: static("berth/css/admin-lists.css"),
        lambda request: static("berth/css/admin-forms.css"),
    ],
    "SCRIPTS": [
        lambda request: static("berth/js/times/zone.js"),
        lambda request: static("berth/js/admin.js"),
    ],
    "ENVIRONMENT": "berth.server.web.admin_site.landing.zone_label",
    "DASHBOARD_CALLBACK": "berth.server.web.admin_site.landing.landing_page",
    "BORDER_RADIUS": "6px",
    "COLORS": {
        "base": GREYS,
        "primary": ACCENTS,
        "font": {f"{name}-{theme}": color for name, color in INK.items() for theme in ("light", "dark")},
    },
    "SIDEBAR": {
        "show_search": True,
        "navigation": [
            {
                "title": "",
                "separator": False,
                "collapsible": False,
                "items": [
                    {
                        "title": "Back to Berth",
                        "icon": "arrow_back",
                        "link": "/",
                        "active": lambda request: False,
                    }
                ],
            },
            *(
                {
                    "title": section,
                    "separator": False,
                    "collapsible": False,
                    "items": [
                        {"title": title, "icon": icon, "link": reverse_lazy(f"admin:{model}_changelist")}
                        for title, icon, model in items
                    ],
                }
                for section, items in SECTIONS.items()
            ),
        ],
    },
}
