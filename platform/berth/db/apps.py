"""Django app for the database layer."""

from django.apps import AppConfig

from berth.db.queries.timestamps import use_fast_timestamp_loader


class DbConfig(AppConfig):
    name = "berth.db"
    label = "berth_db"

    def ready(self) -> None:
        use_fast_timestamp_loader()
