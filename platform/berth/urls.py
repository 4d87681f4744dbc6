"""URL routes of the whole site."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from berth.web.login import admin_sign_in

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/login/", admin_sign_in),
    path("admin/", admin.site.urls),
    path("", include("berth.api.urls")),
    path("", include("berth.web.urls")),
]
