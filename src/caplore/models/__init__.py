"""Captioners: fc, att2in, updown, transformer, behind one protocol of three functions."""
