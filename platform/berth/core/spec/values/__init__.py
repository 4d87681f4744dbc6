"""Types of single values in documents, such as quantities, names and addresses."""
