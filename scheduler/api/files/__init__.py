"""REST endpoints for the files of failed pods."""
