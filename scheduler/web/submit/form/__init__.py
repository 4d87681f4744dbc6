"""Submission draft: a form and a document that are kept in sync."""
