"""The overview page and its parts."""
