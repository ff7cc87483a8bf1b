"""Doors for other people's code: each adapter imports what it adapts to, and nothing imports an adapter."""
