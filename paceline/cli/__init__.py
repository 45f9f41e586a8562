"""The command line: one file a sub-command, heavy imports inside the commands."""
