"""Django app for node pools."""

from django.apps import AppConfig


class PoolsConfig(AppConfig):
    name = "pools"
    label = "pools"
