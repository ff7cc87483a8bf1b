"""Captions as text: tokenised as the field does, counted into a vocabulary, turned into ids once."""
