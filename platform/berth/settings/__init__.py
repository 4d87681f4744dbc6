"""Django settings; everything that differs between installations comes from the environment."""

from berth.settings.admin import *
from berth.settings.apps import *
from berth.settings.base import *
from berth.settings.channels import *
from berth.settings.database import *
from berth.settings.front import *
from berth.settings.logging import *
from berth.settings.metrics import *
from berth.settings.notify import *
from berth.settings.rest import *
from berth.settings.retention import *
from berth.settings.services import *
from berth.settings.single_sign_on import *
from berth.settings.tasks import *
from berth.settings.use import *
from berth.settings.web import *
