"""ASGI application: HTTP and WebSocket requests to Berth, and to the ports of its workloads."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
os.environ.setdefault("BERTH_DATABASE_POOL", "8")

from django.core.asgi import get_asgi_application

pages = get_asgi_application()  # loads the Django apps: the imports below need their models

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings
from django.urls import URLPattern, path

from berth.server import urls  # noqa: F401  (loads all pages before the first request)
from berth.server.api.transport.asgi import RestRouter
from berth.server.front.bodies import BoundedBodies
from berth.server.tracing.spans import this_process_is
from berth.server.web.live.named import named
from projects.api.authentication import may_send_large
from projects.visits.links import hosts_for_ports
from projects.visits.proxy import PortProxy
from scheduler.api.live import LiveConsumer
from scheduler.api.logs.live import LogConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/workloads/<uuid:workload_id>/log", LogConsumer.as_asgi()),
]

this_process_is("web")
berth = ProtocolTypeRouter(
    {
        "http": BoundedBodies(RestRouter(pages), may_send_large),
        "websocket": named(AllowedHostsOriginValidator(URLRouter(websocket_urlpatterns))),
    }
)

# Pod ports are served on separate hosts. Without such hosts, this application serves only Berth.
hosts = hosts_for_ports()
application = (
    berth
    if hosts is None
    else PortProxy(
        berth,
        hosts,
        reserved_cookies=(settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME),
        own_ports=frozenset(settings.BERTH_OWN_PORTS),
    )
)
