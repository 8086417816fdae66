"""The example."""
