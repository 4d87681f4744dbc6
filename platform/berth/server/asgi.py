"""ASGI application for requests to Berth and to workload ports, over HTTP and WebSocket."""

import gc
import os

gc.disable()  # loading creates many objects, but no garbage

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")

from django.core.asgi import get_asgi_application

pages = get_asgi_application()  # loads the Django apps, which the following imports need

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings
from django.urls import URLPattern, path

from berth.server import urls  # noqa: F401  (loads all pages before the first request)
from berth.server.api.transport.asgi import RestRouter
from berth.server.front.bodies import BodyLimitMiddleware
from berth.server.front.threads import RequestThreads
from berth.server.web.live.request_ids import with_request_id
from projects.api.people.authentication import may_send_large_bodies
from projects.port_proxy.links import load_port_origins
from projects.port_proxy.proxy import PortProxy
from scheduler.api.channels.consumer import ChannelConsumer
from scheduler.api.channels.pod_ports import open_pod_port
from scheduler.api.live import LiveConsumer
from scheduler.api.logs.live import LogConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/workloads/<uuid:workload_id>/log", LogConsumer.as_asgi()),
    path("ws/workloads/<uuid:workload_id>/exec", ChannelConsumer.as_asgi()),
]

berth = ProtocolTypeRouter(
    {
        "http": BodyLimitMiddleware(RequestThreads(RestRouter(pages)), may_send_large_bodies),
        "websocket": with_request_id(AllowedHostsOriginValidator(URLRouter(websocket_urlpatterns))),
    }
)

# Pod ports are served on separate hosts. Without such hosts, this application serves only Berth.
hosts = load_port_origins()
application = (
    berth
    if hosts is None
    else PortProxy(
        berth,
        hosts,
        reserved_cookies=(settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME),
        own_ports=frozenset(settings.BERTH_OWN_PORTS),
        open_port=open_pod_port,
    )
)

gc.freeze()  # later collections skip the objects loaded so far
gc.enable()
