"""Here we tell Django about this application."""
from django.apps import AppConfig


class DbConfig(AppConfig):
    name = "berth.db"
    label = "berth_db"
