"""Schedule pages: list, next and last runs, and forms."""
