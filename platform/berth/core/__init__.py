"""Vocabulary of all parts of Berth: the workload document, errors, values and their wording."""
