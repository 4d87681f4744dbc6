"""The submission draft: a form and a document that stay in sync."""
