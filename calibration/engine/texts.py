"""Tokens for the prompts of a workload, which itself only says how long they are and what they share."""

from collections.abc import Sequence

import numpy as np

from simserve.workload.columns import Workload

_GROUP, _ROW = 0, 1


class Texts:
    """Random prompts: rows of one group begin alike, a turn of a chat begins with what was said before.

    The tokens of a row depend on `seed` and the row alone.
    """

    def __init__(self, workload: Workload, vocab_size: int, seed: int = 0) -> None:
        self._workload = workload
        self._vocab_size = vocab_size
        self._seed = seed

    def prompt(self, row: int, said: Sequence[int] = ()) -> list[int]:
        """Tokens of a row's prompt; `said` is the text of its parent, prompt and answer, if it has one."""
        workload = self._workload
        length, group = int(workload.input_len[row]), int(workload.prefix_group[row])
        if workload.parent[row] >= 0:
            assert said, "a turn of a chat begins with what its parent said"
            head = list(said[:length])
        else:
            head = self._random(_GROUP, group, min(length, int(workload.prefix_len[row]))) if group >= 0 else []
        return head + self._random(_ROW, row, length)[len(head) :]

    def _random(self, kind: int, index: int, length: int) -> list[int]:
        generator = np.random.default_rng((self._seed, kind, index))
        tokens: list[int] = generator.integers(self._vocab_size, size=length).tolist()
        return tokens
