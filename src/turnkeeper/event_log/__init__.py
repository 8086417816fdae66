"""The live log: what streams, moves and ends in an instance and its tree of runs, for any number of readers.

Temporal stays the only source of truth. Losing this log loses the live view of what was, and no result.
"""
