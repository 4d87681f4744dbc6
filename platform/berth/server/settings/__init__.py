"""Django settings; everything that differs between installations comes from the environment."""

from berth.server.settings.admin import *
from berth.server.settings.apps import *
from berth.server.settings.base import *
from berth.server.settings.channels import *
from berth.server.settings.database import *
from berth.server.settings.front import *
from berth.server.settings.logging import *
from berth.server.settings.metrics import *
from berth.server.settings.notify import *
from berth.server.settings.rest import *
from berth.server.settings.retention import *
from berth.server.settings.services import *
from berth.server.settings.single_sign_on import *
from berth.server.settings.tasks import *
from berth.server.settings.use import *
from berth.server.settings.web import *
