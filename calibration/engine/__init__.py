"""The real engine: a Llama-like decoder with a paged KV cache.

The scheduler and the block pool of `simserve.engine` decide every step, so that this engine and the simulator can
differ in time only.
"""
