"""Django app for code shared by all REST endpoints."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "berth.server.api"
    label = "berth_api"
    verbose_name = "REST"
    default_auto_field = "django.db.models.BigAutoField"
