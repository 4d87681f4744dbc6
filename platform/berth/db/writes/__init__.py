"""Write many rows in one query, check constraints in advance, and detect concurrent changes."""
