"""Here we tell Django about this application."""
from django.apps import AppConfig


class PoolsConfig(AppConfig):
    name = "pools"
    label = "pools"
