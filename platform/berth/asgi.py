"""Here we answer HTTP and WebSocket requests."""
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.settings")
os.environ.setdefault("BERTH_DATABASE_POOL", "8")

from django.core.asgi import get_asgi_application

pages = get_asgi_application()  # loads the applications: what follows needs their models

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator

from berth.api.asgi import Rest
from berth.routing import websocket_urlpatterns

application = ProtocolTypeRouter(
    {
        "http": Rest(pages),
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
