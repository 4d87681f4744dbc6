"""WebSocket settings.

Changes travel between processes as PostgreSQL notifications (berth.db.wake),
so the layer that channels brings for it has nothing to do and stays inside its process."""

ASGI_APPLICATION = "berth.server.asgi.application"

CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
