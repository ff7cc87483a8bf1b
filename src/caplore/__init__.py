"""caplore: captioners that can say more than one right thing, and the numbers that show it."""

__version__ = "0.1.0"
