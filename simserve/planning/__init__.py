"""Questions that take many runs: a curve over scenario keys (`sweep`) and the largest load that meets the SLO (`capacity`)."""
