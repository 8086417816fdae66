"""Prints the benchmarks; there are none yet."""

print("nothing yet")
