"""Django app for the admin site, whose pages are loaded only by web processes."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, register


class AdminConfig(SimpleAdminConfig):
    """Configuration of the admin site without its pages, which `berth.server.urls` loads later.

    Otherwise, the pages would import a third of the code that a process loads at startup.
    """

    def ready(self) -> None:
        register(check_dependencies, Tags.admin)
        register(check_pages, Tags.admin)


def check_pages(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    admin.autodiscover()
    return list(check_admin_app(app_configs, **options))
