"""How much of the reserved KV cache holds nothing: the rest of last blocks, or of contiguous places."""

from simserve.report.metrics import Columns
from simserve.report.tokens import BoolArray, IntArray


def kv_waste(requests: Columns, done: BoolArray, block_size: int) -> float | None:
    """Share of reserved tokens that are empty, over all steps that gave a completed request a token; None without one.

    In the step of its i-th token (from 0) a request of L prompt tokens has L + i of them in the cache, in blocks of
    `block_size` that it alone pays for. So waste is counted as in the PagedAttention paper (Kwon et al., 2023, figure
    2), the waiting for a prompt's own steps left out.
    """
    prompt, answer = requests["input_len"][done], requests["output_len"][done]
    filled = answer * prompt + answer * (answer - 1) // 2
    blocks = _blocks_up_to(prompt + answer - 1, block_size) - _blocks_up_to(prompt - 1, block_size)
    reserved = int(blocks.sum()) * block_size
    return 1 - int(filled.sum()) / reserved if reserved else None


def _blocks_up_to(tokens: IntArray, block_size: int) -> IntArray:
    """Blocks that 1, 2, ... `tokens` tokens need, summed up."""
    whole, rest = tokens // block_size, tokens % block_size
    blocks: IntArray = block_size * whole * (whole + 1) // 2 + rest * (whole + 1)
    return blocks
