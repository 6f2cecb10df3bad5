"""Triton kernels of the engine: paged decode attention, prefill attention with paged history, RMSNorm,
rotation with the write to the cache.

`TRITON_INTERPRET=1`, set before these modules are imported, runs them on a CPU, slowly; a process that does so can not
compile them as well.
"""
