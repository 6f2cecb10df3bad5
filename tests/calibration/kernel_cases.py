"""The Triton kernels against the torch back end: `python tests/calibration/kernel_cases.py NAME [cuda]`.

Without a GPU in Triton's interpreter, which is chosen by an environment variable before the kernels are imported: hence
a program, which the tests start.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "0" if "cuda" in sys.argv[2:] else "1"

import pytest
import torch

from calibration.engine.attention import attention
from calibration.engine.batch import synthetic_batch
from calibration.engine.config import ModelConfig
from calibration.engine.device_batch import to_device
from calibration.engine.kernels import decode as decode_kernels
from calibration.engine.kernels import prefill as prefill_kernels
from calibration.engine.kv_cache import KVCache
from calibration.engine.norm import add_rms_norm
from calibration.engine.rope import RotaryEmbedding, rotate_and_store

ON_GPU = "cuda" in sys.argv[2:]
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
TOLERANCES = {torch.float32: 3e-6, torch.float16: 2e-3}
if ON_GPU:  # exponentials are approximate there; the interpreter multiplies bf16 wrongly
    TOLERANCES = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
NUM_BLOCKS = 64


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).to(DEVICE, dtype)


def check_attention(
    decodes: list[int], chunks: list[tuple[int, int]], num_kv_heads: int, group: int, head_dim: int, block_size: int
) -> None:
    """Both back ends on one batch, in every dtype."""
    for dtype, tolerance in TOLERANCES.items():
        shape = (NUM_BLOCKS, block_size, num_kv_heads, head_dim)
        keys, values = random(*shape, dtype=dtype), random(*shape, dtype=dtype)
        host = synthetic_batch(decodes, chunks, num_blocks=NUM_BLOCKS, block_size=block_size, vocab_size=9)
        batch = to_device(host, DEVICE)
        # Queries lie between keys, as in the model: heads of a token are next to each other, tokens are not.
        packed = random(len(host.tokens), num_kv_heads * (group + 1), head_dim, dtype=dtype)
        query = packed[:, : num_kv_heads * group]
        got, wanted = (attention(query, keys, values, batch, backend) for backend in ("triton", "torch"))
        error = (got - wanted).abs().max().item()
        print(f"{dtype} {decodes} {chunks} heads {num_kv_heads}x{group} dim {head_dim} block {block_size}: {error:.1e}")
        assert error < tolerance


def decode() -> None:
    lengths = [1, 2, 15, 16, 17, 31, 32, 33, 64, 65]
    check_attention(lengths, [], 1, 4, 64, 16)
    check_attention([5, 70], [], 2, 1, 64, 16)
    check_attention([33, 8], [], 2, 8, 64, 8)
    check_attention([1, 40, 64], [], 1, 8, 128, 16)
    check_attention([19], [], 3, 3, 64, 5)


def split_decode() -> None:
    """Rows too short for all of their shares, and rows with a rest in the last."""
    decode_kernels.num_splits.__globals__["num_processors"] = lambda _: 8
    assert [decode_kernels.num_splits(programs, 4096, DEVICE) for programs in (1, 2, 5, 16)] == [16, 8, 4, 1]
    assert [decode_kernels.num_splits(1, longest, DEVICE) for longest in (511, 512, 1 << 20)] == [1, 2, 16]
    for splits in (2, 4):
        decode_kernels.num_splits = lambda *_, splits=splits: splits
        check_attention([1, 32, 33, 64, 65, 128, 129, 150], [], 1, 4, 64, 16)
        check_attention([100], [(3, 5)], 2, 2, 128, 16)


def prefill() -> None:
    check_attention([], [(2, 0), (15, 0), (16, 0), (17, 1), (33, 31)], 1, 1, 64, 16)
    check_attention([], [(64, 0), (65, 15)], 1, 4, 64, 16)
    check_attention([3, 18], [(5, 60), (70, 2)], 2, 1, 64, 8)
    check_attention([40], [(16, 17), (3, 1)], 1, 8, 128, 16)
    check_attention([1], [(20, 4)], 1, 3, 64, 5)


def rotary() -> None:
    for dtype, tolerance in TOLERANCES.items():
        for num_heads, num_kv_heads, head_dim in ((4, 1, 64), (3, 3, 64), (8, 1, 128), (2, 2, 16)):
            model = ModelConfig("", 1, 2, num_heads, num_kv_heads, head_dim, 1, 1)
            embedding = RotaryEmbedding(head_dim, 10_000.0, 200, dtype, DEVICE)
            host = synthetic_batch([1, 17, 200], [(5, 31)], num_blocks=NUM_BLOCKS, block_size=16, vocab_size=9)
            heads = random(len(host.tokens), num_heads + 2 * num_kv_heads, head_dim, dtype=dtype)
            results = []
            for backend in ("triton", "torch"):
                cache = KVCache(model, NUM_BLOCKS, 16, dtype, DEVICE)
                query = rotate_and_store(heads, to_device(host, DEVICE), embedding, cache, 1, backend=backend)
                results.append((query, cache.keys, cache.values))
            errors = [(a - b).abs().max().item() for a, b in zip(*results, strict=True)]
            print(f"{dtype} {num_heads}+{num_kv_heads} dim {head_dim}: {errors}")
            assert max(errors) < tolerance * 2


def rms_norm() -> None:
    for hidden_size in (1, 64, 100, 1024, 1025):
        for dtype, tolerance in TOLERANCES.items():
            x, residual = random(3, hidden_size, dtype=dtype), random(3, hidden_size, dtype=dtype)
            weight = random(hidden_size, dtype=dtype)
            for added in (None, residual):
                got = add_rms_norm(x, added, weight, 1e-5, "triton")
                wanted = add_rms_norm(x, added, weight, 1e-5, "torch")
                errors = [(a - b).abs().max().item() for a, b in zip(got, wanted, strict=True)]
                print(f"{dtype} {hidden_size}: {errors}")
                assert max(errors) < tolerance * 4


def other_tiles() -> None:
    """The launch configurations of newer devices."""
    for kernels in () if ON_GPU else (decode_kernels, prefill_kernels):
        kernels.architecture_of = lambda _: "sm_90"
    check_attention([1, 127, 128, 129, 200], [], 1, 2, 64, 16)
    check_attention([], [(140, 30), (128, 0)], 1, 1, 64, 16)
    check_attention([65], [(130, 65)], 1, 1, 128, 16)


def bf16_is_refused() -> None:
    """Its products would be silently wrong."""
    batch = to_device(synthetic_batch([3], [(4, 0)], num_blocks=8, block_size=4, vocab_size=9), DEVICE)
    cache = torch.zeros(8, 4, 1, 64, dtype=torch.bfloat16)
    with pytest.raises(AssertionError, match="bf16"):
        attention(torch.zeros(5, 1, 64, dtype=torch.bfloat16), cache, cache, batch, "triton")


def engine() -> None:
    """A whole engine on the Triton back end: chunks with history, decodes and a padded batch."""
    from test_real_engine import CONFIG, MODEL, ModelRunner, Traffic, num_mixed, num_split, replace

    model: ModelConfig = replace(MODEL, head_dim=64, num_layers=1)
    config = replace(CONFIG, max_num_batched_tokens=8)
    runner = ModelRunner(model, config, device=DEVICE, dtype="fp32", backend="triton", graph_sizes=(4,))
    if ON_GPU:
        runner.warm_up()
    traffic = Traffic(runner, config)
    for length in (3, 5, 20):
        traffic.add(length, output_len=4)
    traffic.run()
    assert traffic.count(num_mixed)
    assert traffic.count(num_split)
    assert traffic.count(lambda output: output.graph == 4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
