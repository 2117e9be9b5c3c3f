"""The commands of the command line, a file each: its function `command` is what `sweep/cli.py` registers."""
