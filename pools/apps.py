"""Django app for pools and nodes."""

from django.apps import AppConfig


class PoolsConfig(AppConfig):
    name = "pools"
    label = "pools"
