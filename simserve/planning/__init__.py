"""Questions that take many runs.

`sweep` draws a curve over scenario keys, `capacity` finds the largest load that meets the SLO.
"""
