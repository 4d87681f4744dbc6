"""Here we register what every REST door shares, with the one table it keeps."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "berth.api"
    label = "berth_api"
    verbose_name = "REST"
    default_auto_field = "django.db.models.BigAutoField"
