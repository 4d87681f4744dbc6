"""Django app of the admin site, whose pages only web processes load."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, register


class AdminConfig(SimpleAdminConfig):
    """The admin site without its pages: `berth.server.urls` loads them.

    They import the REST API and the reports, which make up a third of what a process loads at its start.
    """

    def ready(self) -> None:
        register(check_dependencies, Tags.admin)
        register(check_pages, Tags.admin)


def check_pages(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    admin.autodiscover()
    return list(check_admin_app(app_configs, **options))
