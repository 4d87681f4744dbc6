"""URL routes of the REST API. Each app adds its own routes."""

from django.urls import URLPattern, URLResolver, include, path, re_path

from berth.server.api import health, schema
from berth.server.api.problems import not_found

v1: list[URLPattern | URLResolver] = [
    path("schema", schema.OpenApiDocument.as_view(), name="schema"),
    path("docs", schema.SwaggerPage.as_view(), name="docs"),
    path("", include("projects.api.urls")),
    path("", include("pools.api.urls")),
    path("", include("scheduler.api.urls")),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", include("scheduler.api.metrics.endpoint")),
    path("api/v1/", include((v1, "api"))),
    re_path(r"^api/", not_found),
]
