"""Commands of `berth`, one folder per page of the command reference. `berth.cli.main` lists all commands."""
