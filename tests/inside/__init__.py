"""Ordinary work: rows of what must work inside, by subject."""
