"""Settings of the REST framework."""

from typing import Any

from berth.server.settings.base import env

# Requests a minute of one person; log-ins of one address and of one name; tokens that do not count.
BERTH_RATE_LIMITS = {
    "read": env.int("BERTH_RATE_READ", default=6000),
    "write": env.int("BERTH_RATE_WRITE", default=3000),
    "bad_token": env.int("BERTH_RATE_BAD_TOKEN", default=60),
    "login": env.int("BERTH_RATE_LOGIN", default=20),
}
BERTH_CALL_MIB = env.int("BERTH_CALL_MIB", default=32)  # of one function with its arguments, or one result
BERTH_SESSION_MIB = env.int("BERTH_SESSION_MIB", default=512)  # of all calls and results a session holds

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "projects.api.authentication.BearerTokens",
        "projects.api.authentication.Sessions",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": [
        "berth.server.api.parsers.JSONParser",
        "berth.server.api.parsers.YAMLParser",
        "berth.server.api.parsers.OldYAMLParser",
    ],
    "EXCEPTION_HANDLER": "berth.server.api.problems.explained",
}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Berth",
    "DESCRIPTION": "Shares GPUs between departments and projects by quota and fair share.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    # The page asks no other host: its own checker of descriptions would.
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None, "persistAuthorization": False},
    "POSTPROCESSING_HOOKS": [],
    "AUTHENTICATION_WHITELIST": [],
    "APPEND_COMPONENTS": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "SECURITY": [{"token": []}],
    "DISABLE_ERRORS_AND_WARNINGS": False,
}
