"""The Triton kernels compute what torch computes: in Triton's interpreter, and on a GPU where there is one."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")


CASES = ["decode", "split_decode", "prefill", "other_tiles", "rotary", "rms_norm", "engine"]


def run(*arguments: str) -> None:
    program = Path(__file__).with_name("kernel_cases.py")
    done = subprocess.run([sys.executable, str(program), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [*CASES, "bf16_is_refused"])
def test_interpreted_kernels_equal_torch(name: str) -> None:
    run(name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_kernels_on_a_gpu_equal_torch(name: str) -> None:
    run(name, "cuda")
