"""WSGI application, without live updates."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.settings")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
