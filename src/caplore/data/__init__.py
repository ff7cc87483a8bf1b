"""Data sets as one folder of plain files; importers that make such folders; a made world."""
