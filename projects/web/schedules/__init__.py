"""Schedule pages: the list, next and last runs, and forms."""
