"""Vocabulary shared by all parts of Berth: the workload document, errors, values and their wording."""
