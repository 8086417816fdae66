"""How the parts are run together."""
