"""The command line: one file per command, imported lightly, so that `isthmus --help` answers at once."""
