"""The server: its settings, its entry points and the code that all its applications share."""

from berth.core.version import require_server_python

require_server_python()  # must run before any module that needs a newer Python is imported
