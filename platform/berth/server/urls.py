"""URL routes of the entire site."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from berth.server.web.authentication.login import admin_sign_in

handler403 = "berth.server.web.authentication.rejections.permission_denied"
handler500 = "berth.server.web.middleware.server_error"
admin.autodiscover()
urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/login/", admin_sign_in),
    # The admin site's own password page neither limits guesses of the current password nor audits the change.
    path("admin/password_change/", RedirectView.as_view(pattern_name="password")),
    path("admin/", admin.site.urls),
    path("", include("berth.server.api.urls")),
    path("", include("berth.server.web.urls")),
]
