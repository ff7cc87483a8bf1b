"""The command line: parse, call, print. One file per command; nothing heavy is imported before it is needed."""
