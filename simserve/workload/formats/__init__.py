"""Formats of recorded traffic: one file each, an entry in `registry.py`, and what they share in reading.

Nothing is judged here beyond "this is not a row of this format": values are checked in one place, `traces.py`.
"""
