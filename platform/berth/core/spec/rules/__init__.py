"""Validation rules that involve several fields of a document."""
