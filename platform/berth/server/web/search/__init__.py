"""The search dialog: pages, objects, actions and recent pages, ranked by their match."""
