"""The engine: vLLM's scheduler and KV block pool in plain Python, and the SimPy process that gives them time."""
