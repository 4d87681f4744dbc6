"""URL routes of the pages. Each app adds its own routes."""

from django.urls import include, path, re_path

from berth.server.web import overview
from berth.server.web.authentication import login, single_sign_on
from berth.server.web.documentation import documentation
from berth.server.web.pages import redirect_without_slash
from berth.server.web.search import search

urlpatterns = [
    path("", overview.index, name="overview"),
    path("search", search, name="search"),
    path("login", login.SignIn.as_view(), name="login"),
    path("login/sso", single_sign_on.begin, name="sso"),
    path("login/sso/return", single_sign_on.end, name="sso-end"),
    re_path(r"^docs(?:/(?P<path>.*))?$", documentation, name="documentation"),
    path("logout", login.SignOut.as_view(), name="logout"),
    path("", include("projects.web.urls")),
    path("", include("pools.web.urls")),
    path("", include("scheduler.web.urls")),
    re_path(r"^(?P<path>.+)/$", redirect_without_slash),
]
