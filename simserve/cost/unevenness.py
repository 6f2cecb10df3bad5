"""Decodes of unequal context in one attention kernel: the longest works on when the others are done.

FlashAttention 2 gives each head of each sequence to one thread block. A batch takes the time that its context takes
spread evenly over the GPU, and then part of what the longest sequence is still behind. Batches whose lengths differ are
therefore costed as even ones of more context: the number stays the same while such a batch decodes, for its longest
sequence and the mean grow alike.
"""

from typing import NamedTuple

_SHARES = 1024


class Unevenness(NamedTuple):
    """What each token by which the longest sequence exceeds the mean counts for, in 1/1024 tokens of context: in steps
    of decodes `alone`, and `beside` chunks.
    """

    alone: int
    beside: int

    @classmethod
    def of(cls, alone: float, beside: float) -> "Unevenness":
        """From tokens of context."""
        return cls(round(_SHARES * alone), round(_SHARES * beside))

    def balanced(self, num_decodes: int, context: int, longest: int, *, mixed: bool) -> int:
        """Context of an even batch that takes the time of one with `context` tokens, the longest sequence `longest`
        (0 where it is not known: taken as even); at most as if all were as long.
        """
        if num_decodes * longest <= context:
            return context
        weight = min(self.beside if mixed else self.alone, _SHARES * num_decodes)
        return context + (num_decodes * longest - context) * weight // (_SHARES * num_decodes)
