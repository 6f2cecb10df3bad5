"""The traffic of a scenario: when requests come, how long they are and what they share, as columns."""
