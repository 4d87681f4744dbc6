"""URL routes of the pages. Each app adds its own routes."""

from django.urls import include, is_valid_path, path, re_path, register_converter

from berth.server.web.authentication import login, single_sign_on
from berth.server.web.documentation import documentation
from berth.server.web.overview.page import index
from berth.server.web.pages import redirect_without_slash
from berth.server.web.search.dialog import search


class ExistingPage:
    """Converter that matches only paths of existing pages. The value has no leading or trailing slash."""

    regex = ".+"

    def to_python(self, value: str) -> str:
        if not is_valid_path(f"/{value.strip('/')}"):
            raise ValueError
        return value.strip("/")

    def to_url(self, value: str) -> str:
        return value


register_converter(ExistingPage, "existing_page")
urlpatterns = [
    path("", index, name="overview"),
    path("search", search, name="search"),
    path("login", login.SignIn.as_view(), name="login"),
    path("login/sso", single_sign_on.begin, name="sso"),
    path("login/sso/return", single_sign_on.end, name="sso-end"),
    re_path(r"^docs(?:/(?P<path>.*))?$", documentation, name="documentation"),
    path("logout", login.SignOut.as_view(), name="logout"),
    path("", include("projects.web.urls")),
    path("", include("pools.web.urls")),
    path("", include("scheduler.web.urls")),
    path("<existing_page:path>/", redirect_without_slash),
]
