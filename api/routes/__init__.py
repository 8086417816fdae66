"""The routes, a noun a module."""
