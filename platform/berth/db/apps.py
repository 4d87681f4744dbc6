"""Django app of the database layer."""

from django.apps import AppConfig


class DbConfig(AppConfig):
    name = "berth.db"
    label = "berth_db"
