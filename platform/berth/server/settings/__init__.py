"""Django settings. Values that differ between installations come from environment variables."""

from berth.server.settings.admin_site import *
from berth.server.settings.base import *
from berth.server.settings.services import *
from berth.server.settings.web import *
