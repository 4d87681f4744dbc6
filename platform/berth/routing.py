"""Here we say which consumer answers which WebSocket."""

from django.urls import URLPattern, path

from scheduler.consumers import LiveConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/live", LiveConsumer.as_asgi()),
]
