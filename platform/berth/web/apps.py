"""Here we tell Django about this application."""
from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "berth.web"
    label = "berth_web"
