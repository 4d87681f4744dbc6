"""Read workload documents, upload their code, and submit several at once."""
