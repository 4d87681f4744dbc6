"""Here the whole of what Berth knows is put into one file, and taken out of it again."""
