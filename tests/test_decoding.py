"""The decoding set against brute force: requests that are visited one by one, step by step."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from simserve.engine.decoding import DecodingSet
from simserve.engine.request import DECODING, FINISHED, WAITING, Request


class Plain:
    """The same requests as (tokens computed, steps to the last token), in order of admission."""

    def __init__(self) -> None:
        self.requests: dict[Request, list[int]] = {}

    def tick(self, num_steps: int) -> None:
        for numbers in self.requests.values():
            numbers[0] += num_steps
            numbers[1] -= num_steps

    def blocks_needed(self, num_steps: int, block_size: int) -> int:
        return sum(-(-(computed + num_steps) // block_size) + computed // -block_size for computed, _ in self.numbers())

    def steps_within(self, num_blocks: int, limit: int, block_size: int) -> int:
        return max(steps for steps in range(limit + 1) if self.blocks_needed(steps, block_size) <= num_blocks)

    def numbers(self) -> list[list[int]]:
        return list(self.requests.values())


def agree(decoding: DecodingSet, plain: Plain) -> None:
    size = decoding.block_size
    assert decoding.count == len(plain.requests)
    assert decoding.context == sum(computed for computed, _ in plain.numbers())
    for num_steps in (0, 1, 2, size, 3 * size + 1):
        assert decoding.blocks_needed(num_steps) == plain.blocks_needed(num_steps, size)
        one_more = plain.blocks_needed(num_steps + 1, size) - plain.blocks_needed(num_steps, size)
        assert decoding.blocks_of_step(num_steps) == one_more
    if plain.requests:
        for num_blocks in (0, 1, len(plain.requests), 3 * len(plain.requests)):
            for limit in (1, size, 40):
                assert decoding.steps_within(num_blocks, limit) == plain.steps_within(num_blocks, limit, size)
        assert decoding.next_finish() - decoding.clock == min(left for _, left in plain.numbers())
        assert decoding.longest() == max(computed for computed, _ in plain.numbers())


def request(seq: int) -> Request:
    made = Request(seq, 0, 1, 1, 1)
    made.seq = seq
    return made


@given(st.sampled_from([1, 2, 3, 16]), st.randoms(use_true_random=False))
def test_sums_over_the_set_are_those_of_its_requests(block_size: int, random: Random) -> None:
    """Whoever joins, leaves or comes back: context, the longest, blocks of any steps, who is next to finish."""
    decoding, plain = DecodingSet(block_size), Plain()
    decoding.lengths = []
    for seq in range(30):
        kind = random.random()
        if kind < 0.5:
            joined, computed, left = request(seq), random.randint(1, 50), random.randint(1, 40)
            decoding.join(joined, computed, left)
            plain.requests[joined] = [computed, left]
        elif kind < 0.7 and plain.requests:
            gone = random.choice(list(plain.requests))
            computed, _ = plain.requests.pop(gone)
            decoding.leave(gone)
            gone.state = WAITING
            assert (gone.num_computed_tokens, gone.num_blocks) == (computed, -(-computed // block_size))
        elif plain.requests:
            num_steps = random.randint(1, min(left for _, left in plain.numbers()))
            decoding.clock += num_steps
            plain.tick(num_steps)
            finishing = decoding.pop_finishing(decoding.clock)
            assert finishing == [done for done, (_, left) in plain.requests.items() if left == 0]
            for done in finishing:
                decoding.leave(done)
                done.state = FINISHED
                del plain.requests[done]
        agree(decoding, plain)


def test_a_request_that_left_and_came_back_finishes_once() -> None:
    """Its first entry in the heap of finishes is stale, also where it names the very same clock."""
    decoding = DecodingSet(4)
    one, other = request(0), request(1)
    decoding.join(one, 5, 10)
    decoding.join(other, 5, 12)
    decoding.leave(one)
    one.state, one.seq = WAITING, 2
    decoding.join(one, 5, 10)
    assert one.state is DECODING
    assert decoding.next_finish() == 10
    assert decoding.pop_finishing(9) == []
    assert decoding.pop_finishing(10) == [one]
    assert decoding.pop_finishing(12) == [other]
