"""Here we say which consumer answers which WebSocket."""
from django.urls import URLPattern

websocket_urlpatterns: list[URLPattern] = []
