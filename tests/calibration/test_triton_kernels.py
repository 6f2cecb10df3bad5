"""The Triton kernels compute what torch computes: in Triton's interpreter, on a CPU."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")


@pytest.mark.parametrize(
    "name", ["decode", "split_decode", "prefill", "other_tiles", "rotary", "rms_norm", "bf16_is_refused", "engine"]
)
def test_interpreted_kernels_equal_torch(name: str) -> None:
    program = Path(__file__).with_name("interpreted.py")
    done = subprocess.run([sys.executable, str(program), name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
