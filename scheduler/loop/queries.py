"""Queries shared by several steps of the loop."""

from berth.db.compiled import compiled_once
from projects.models import Project

PROJECTS = compiled_once(lambda keys: Project.objects.select_related("department").filter(pk__any=keys))
