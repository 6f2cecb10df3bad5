"""A step with drafts to verify, as its counts."""

from collections.abc import Sequence
from typing import NamedTuple

Chunk = tuple[int, int]
"""New tokens, and tokens computed before."""


class Batch(NamedTuple):
    """Requests with drafts to verify, and prompt chunks.

    `queries`: tokens of all verifications; `context`: tokens of KV that they read, their own included; `pairs`: of
    queries with the keys that they see; `longest`: most queries of a request.
    """

    num_verified: int
    queries: int
    context: int
    pairs: int
    longest: int
    prompts: Sequence[Chunk]

    @classmethod
    def of(cls, verified: Sequence[Chunk], prompts: Sequence[Chunk]) -> "Batch":
        """The batch of some verifications and chunks."""
        queries = context = pairs = longest = 0
        for new, history in verified:
            queries += new
            context += history + new
            pairs += new * history + new * (new + 1) // 2
            longest = max(longest, new)
        return cls(len(verified), queries, context, pairs, longest, prompts)

    @property
    def tokens(self) -> int:
        """All tokens of the step."""
        return self.queries + sum(new for new, _ in self.prompts)

    @property
    def num_requests(self) -> int:
        """All requests of the step."""
        return self.num_verified + len(self.prompts)

    @property
    def all_context(self) -> int:
        """Tokens of all requests after the step, as if every draft were right."""
        return self.context + sum(new + history for new, history in self.prompts)

    def is_uniform(self, query_len: int) -> bool:
        """Whether all requests verify, and all the same number of tokens."""
        return not self.prompts and self.queries == query_len * self.num_verified

    def one_more_each(self) -> "Batch":
        """The same batch with one token more of each request, as a draft model sees it: the token just sampled."""
        more = [(new + 1, history) for new, history in self.prompts]
        verified = self.num_verified
        context = self.context + verified
        return Batch(verified, self.queries + verified, context, self.pairs + context, self.longest + 1, more)
