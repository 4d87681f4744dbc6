"""The submission draft: a form and a document that follow each other."""
