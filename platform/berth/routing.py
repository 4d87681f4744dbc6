"""WebSocket routes."""

from django.urls import URLPattern, path

from scheduler.consumers import LiveConsumer
from scheduler.log_consumer import LogConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/workloads/<uuid:workload_id>/log", LogConsumer.as_asgi()),
]
