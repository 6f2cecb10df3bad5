"""How far simserve can be trusted: its scheduler replayed against recorded traces of real engines."""
