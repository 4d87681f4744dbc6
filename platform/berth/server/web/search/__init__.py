"""The search dialog: pages, objects, actions and recent pages, ranked by how well they match."""
