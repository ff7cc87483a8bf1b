"""Pictures and clips as numbers: decode the file, encode, pool, keep."""
