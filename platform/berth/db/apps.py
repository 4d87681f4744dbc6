"""Django app for the database layer."""

from django.apps import AppConfig

from berth.db.queries.timestamps import load_timestamps_quickly


class DbConfig(AppConfig):
    name = "berth.db"
    label = "berth_db"

    def ready(self) -> None:
        load_timestamps_quickly()
