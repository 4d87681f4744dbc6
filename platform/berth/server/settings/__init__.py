"""Django settings. Everything that differs between installations comes from environment variables."""

from berth.server.settings.admin_site import *
from berth.server.settings.base import *
from berth.server.settings.services import *
from berth.server.settings.web import *
