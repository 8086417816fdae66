"""Protocols of other people's clients, each a reader of the same log."""
