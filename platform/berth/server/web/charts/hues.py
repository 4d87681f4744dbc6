"""Project colours, which are the same on all pages."""

HUES = 14  # projects with consecutive numbers have different colours
OTHER_PROJECTS_HUE = "hue-other"


def project_hue(project_id: int) -> str:
    """Return the CSS class of a project's colour."""
    return f"hue-{project_id % HUES}"
