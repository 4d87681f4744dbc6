"""Base class of the service endpoints."""

from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.server.api.door import Door
from projects.models import Service
from projects.service_selectors import find_service
from projects.services.inference.rules import BadScaling


class ServiceDoor(Door):
    """What elsewhere is 422 is 400 here: that is what programs that scale services know."""

    def service(self, given: str) -> Service:
        return find_service(self.acting, given)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Invalid) and not isinstance(exc, BadScaling):
            exc = BadScaling(exc.problems)
        answer: Response = super().handle_exception(exc)
        return answer
