"""The OpenAPI document and its Swagger UI, served without other hosts."""

from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny


class Description(SpectacularAPIView):
    """Public like the source itself: it tells what can be asked, and nothing of what is there."""

    permission_classes = [AllowAny]
    authentication_classes = []


class DocsPage(SpectacularSwaggerSplitView):
    """Swagger UI without scripts and styles in the page itself: its content security policy forbids them."""

    template_name = "api/docs.html"
    permission_classes = [AllowAny]
    authentication_classes = []
    url_name = "api:schema"
