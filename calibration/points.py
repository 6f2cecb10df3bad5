"""Which steps a calibration measures: a grid of decodes and chunks, random mixed steps, and some that no fit sees.

Everything follows from the limits and a seed, so that an interrupted calibration goes on where it stopped.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

Chunks = tuple[tuple[int, int], ...]


class Point(NamedTuple):
    """One step: contexts of its decodes (own token included), its chunks as (new tokens, history)."""

    kind: str
    """`decode`, `prefill` or `mixed`."""
    held_out: bool
    decodes: tuple[int, ...]
    chunks: Chunks

    @property
    def tokens(self) -> int:
        """Tokens of the step."""
        return len(self.decodes) + sum(new for new, _ in self.chunks)


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest steps to measure; `kv_tokens` is what the cache holds."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_context: int
    kv_tokens: int


CPU_LIMITS = Limits(32, 512, 1024, 32 * 1024 + 2048)
QUICK_LIMITS = Limits(16, 256, 512, 8 * 1024 + 1024)
CUDA_LIMITS = Limits(256, 8192, 8192, 512 * 1024)


def points(limits: Limits, *, quick: bool = False, seed: int = 0) -> list[Point]:
    """The steps of a calibration within the limits."""
    generator = random.Random(seed)
    mixed, held_out = (8, 12) if quick else (24, 42)
    found = [*_decodes(limits, quick), *_prefills(limits, quick)]
    found += [_mixed(limits, generator, held_out=False) for _ in range(mixed)]
    for index in range(held_out):
        draw = (_decode, _prefill, _mixed)[index % 3]
        found.append(draw(limits, generator, held_out=True))
    return found


def _decodes(limits: Limits, quick: bool) -> Iterator[Point]:
    counts = [1, 2, 4, 8, 16] if quick else [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    contexts = [64, 512] if quick else [64, 256, 1024, 4096, 8192]
    for count in counts:
        for context in contexts:
            fits = count <= limits.max_num_seqs and context <= limits.max_context
            if fits and count * context <= limits.kv_tokens - 16 * count:
                yield Point("decode", False, (context,) * count, ())


def _prefills(limits: Limits, quick: bool) -> Iterator[Point]:
    sizes = [8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192]
    histories = [0, 256] if quick else [0, 256, 1024, 4096]
    for new in sizes:
        for history in histories:
            if new <= limits.max_num_batched_tokens and new + history <= limits.max_context * 3 // 2:
                yield Point("prefill", False, (), ((new, history),))


def _decode(limits: Limits, generator: random.Random, *, held_out: bool) -> Point:
    return Point("decode", held_out, _contexts(limits, generator, 1, limits.max_num_seqs), ())


def _prefill(limits: Limits, generator: random.Random, *, held_out: bool) -> Point:
    new = _log_uniform(generator, 8, limits.max_num_batched_tokens)
    return Point("prefill", held_out, (), ((new, generator.randrange(0, limits.max_context - 1)),))


def _mixed(limits: Limits, generator: random.Random, *, held_out: bool) -> Point:
    """Some decodes, and one to three chunks that share what is left of the tokens, as a busy engine has them."""
    decodes = _contexts(limits, generator, 1, limits.max_num_seqs - 3)
    left = limits.max_num_batched_tokens - len(decodes)
    chunks = []
    for _ in range(generator.randint(1, 3)):
        if left < 8:
            break
        new = _log_uniform(generator, 4, left)
        history = 0 if generator.random() < 0.6 else generator.randrange(0, limits.max_context // 2)
        chunks.append((new, history))
        left -= new
    return Point("mixed", held_out, decodes, tuple(chunks))


def _contexts(limits: Limits, generator: random.Random, least: int, most: int) -> tuple[int, ...]:
    count = _log_uniform(generator, least, most)
    top = max(16, min(limits.max_context, limits.kv_tokens // (2 * count)))
    middle = generator.uniform(16, top)
    return tuple(min(top, max(2, int(middle * generator.uniform(0.5, 1.5)))) for _ in range(count))


def _log_uniform(generator: random.Random, least: int, most: int) -> int:
    return min(most, int(least * (most / least) ** generator.random() + 0.5))
