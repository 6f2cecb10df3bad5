"""Every kernel compiles for GPUs that are not here, within what each of them has."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")

from calibration.engine.kernels.compile import Resources
from calibration.engine.kernels.launch import ARCHITECTURES, norm_launch

KERNELS = ("paged_prefill", "paged_decode", "combine_splits", "rotate_and_store_token")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_within_the_limits_of_the_device(architecture: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "calibration.engine.kernels.compile", architecture]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    compiled = {tuple(line.split()[:4]) for line in done.stdout.splitlines()[1:]}
    for element in ("bf16", "fp32"):
        for kernel, size in product(KERNELS, ("64", "128")):
            assert (kernel, architecture, element, size) in compiled
        assert ("add_rms_norm_rows", architecture, element, "8192") in compiled


def test_warps_are_a_power_of_two() -> None:
    warps = [norm_launch(hidden_size).num_warps for hidden_size in (1, 511, 512, 1024, 2560, 4096, 5120, 16384)]
    assert warps == [1, 1, 1, 2, 4, 8, 8, 16]


def test_a_broken_limit_is_told() -> None:
    fits = Resources("paged_decode", "gfx942", "bf16", 128, 256, 100, 0, 64 * 1024, 8)
    assert fits.complaints == []
    for change in (
        {"registers": 513},
        {"threads": 1024, "registers": 200},
        {"spilled": 8},
        {"shared_memory": 64 * 1024 + 1},
        {"matrix_instructions": 0},
    ):
        assert replace(fits, **change).complaints, change
