"""Compiles every kernel ahead of time for devices that are not here, and reads what each program needs of them.

`python -m calibration.engine.kernels.compile [sm_90 bf16]` prints the table, of everything or of what is named. That a
kernel compiles does not prove that it launches: a program may want more shared memory than a device has, so the limits
are checked apart.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from calibration.engine.kernels import decode, prefill, rms_norm, rotary
from calibration.engine.kernels.launch import (
    ARCHITECTURES,
    DECODE,
    MAX_SPLITS,
    PREFILL,
    Launch,
    norm_launch,
    rotary_launch,
)

TARGETS: Final = {name: GPUTarget("cuda", int(name[3:]), 32) for name in ARCHITECTURES[:3]}
TARGETS["gfx942"] = GPUTarget("hip", "gfx942", 64)

MATRIX_INSTRUCTION: Final = r"\bmma\.sync|\bwgmma\.mma_async|\btcgen05\.mma|\bv_mfma"

ELEMENTS: Final = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use at most: registers per thread, registers in all, bytes of shared memory."""

    registers: int
    register_file: int
    shared_memory: int


LIMITS: Final = {
    # CUDA C++ Programming Guide, compute capabilities: 163 KB a block on 8.0, 227 KB on 9.0 and 10.0
    "sm_80": Limits(255, 65536, 163 * 1024),
    "sm_90": Limits(255, 65536, 227 * 1024),
    "sm_100": Limits(255, 65536, 227 * 1024),
    # AMD CDNA 3 ISA: 512 vector registers a lane, accumulation registers included; 64 KB of LDS a workgroup
    "gfx942": Limits(512, 4 * 512 * 64, 64 * 1024),
}


@dataclass(frozen=True, slots=True)
class Resources:
    """What one program of a compiled kernel needs; registers are per thread, of the vector file on AMD."""

    kernel: str
    architecture: str
    element: str
    size: int
    """Its head_dim or hidden_size."""
    threads: int
    registers: int
    spilled: int
    """Bytes of stack with CUDA, registers on AMD."""
    shared_memory: int
    matrix_instructions: int
    """Instructions of tensor or matrix cores in its code."""

    @property
    def complaints(self) -> list[str]:
        """Which limits of the device it breaks."""
        limits = LIMITS[self.architecture]
        attends = self.kernel.startswith("paged")
        broken = {
            "no matrix instructions": attends and self.element == "bf16" and not self.matrix_instructions,
            f"{self.registers} registers": self.registers > limits.registers,
            f"{self.threads} threads of {self.registers} registers": (
                self.threads * self.registers > limits.register_file
            ),
            f"{self.spilled} spilled": self.spilled > 0,
            f"{self.shared_memory} bytes of shared memory": self.shared_memory > limits.shared_memory,
        }
        return [what for what, is_broken in broken.items() if is_broken]


def compile_all(architecture: str, element: str) -> Iterator[Resources]:
    """Compile every kernel in every launch configuration that a device may use."""
    size = ELEMENTS[element]
    for head_dim, launch in PREFILL[size][architecture].items():
        yield _compile(prefill.paged_prefill, architecture, element, head_dim, launch, _prefill_constants(launch))
    for head_dim, launch in DECODE[size][architecture].items():
        for splits in (1, MAX_SPLITS):
            constants = _decode_constants(launch, splits)
            yield _compile(decode.paged_decode, architecture, element, head_dim, launch, constants)
        combine, constants = Launch(num_warps=2, num_stages=1), {"NUM_SPLITS": MAX_SPLITS}
        yield _compile(decode.combine_splits, architecture, element, head_dim, combine, constants)
    for head_dim in PREFILL[size][architecture]:
        heads = {"NUM_HEADS": 32, "NUM_KV_HEADS": 8, "PADDED_ROTATED": 64, "PADDED_KV": 8}
        launch = rotary_launch(40, head_dim)
        yield _compile(rotary.rotate_and_store_token, architecture, element, head_dim, launch, heads)
    for hidden_size in (2048, 8192):
        constants = {"BLOCK": hidden_size, "ADD": True}
        launch = norm_launch(hidden_size)
        yield _compile(rms_norm.add_rms_norm_rows, architecture, element, hidden_size, launch, constants)


def _prefill_constants(launch: Launch) -> dict[str, int]:
    return {"NUM_KV_HEADS": 8, "GROUP": 4, "BLOCK_SIZE": 16, "TILE_Q": launch.tile_q, "TILE_KV": launch.tile_kv}


def _decode_constants(launch: Launch, splits: int) -> dict[str, int]:
    heads = {"NUM_KV_HEADS": 8, "GROUP": 4, "PADDED_GROUP": 16}
    return heads | {"BLOCK_SIZE": 16, "TILE_KV": launch.tile_kv, "NUM_SPLITS": splits}


def _compile(
    kernel: Any, architecture: str, element: str, size: int, launch: Launch, constants: dict[str, Any]
) -> Resources:
    if "HEAD_DIM" in kernel.arg_names:
        constants = constants | {"HEAD_DIM": size}
    signature = {
        name: "constexpr" if name in constants else _type(name, element, constants) for name in kernel.arg_names
    }
    # As the launcher would find them: tensors and their strides are multiples of 16.
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or name in {"query_stride", "hidden_size"}
    }
    source = ASTSource(kernel, signature, constants, aligned)
    target = TARGETS[architecture]
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    compiled = triton.compile(source, target=target, options=options)
    registers, spilled = _amd_registers(compiled) if target.backend == "hip" else _cuda_registers(compiled)
    return Resources(
        kernel=kernel.__name__,
        architecture=architecture,
        element=element,
        size=size,
        threads=launch.num_warps * target.warp_size,
        registers=registers,
        spilled=spilled,
        shared_memory=compiled.metadata.shared,
        matrix_instructions=len(re.findall(MATRIX_INSTRUCTION, compiled.asm.get("ptx") or compiled.asm["amdgcn"])),
    )


def _type(name: str, element: str, constants: dict[str, Any]) -> str:
    """Type of an argument, which has the same name in every kernel."""
    if name in {"block_table", "query_starts", "context_lens"}:
        return "*i32"
    if name in {"positions", "slots"}:
        return "*i64"
    if name in {"scale", "eps"}:
        return "fp32"
    if name in {"first_row", "query_stride", "table_stride", "hidden_size"}:
        return "i32"
    if name in {"largest", "total", "largest_out", "total_out"} or (name == "parts" and constants["NUM_SPLITS"] > 1):
        return "*fp32"
    return f"*{element}"


def _cuda_registers(compiled: Any) -> tuple[int, int]:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return _number(r"REG:(\d+)", text), _number(r"STACK:(\d+)", text) + _number(r"LOCAL:(\d+)", text)


def _amd_registers(compiled: Any) -> tuple[int, int]:
    text = compiled.asm["amdgcn"]
    return _number(r"\.vgpr_count:\s+(\d+)", text), _number(r"\.vgpr_spill_count:\s+(\d+)", text)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, f"no {pattern} in {text[:200]}"
    return int(found[1])


def main(named: Sequence[str]) -> None:
    """Print the table; fail if a limit is broken."""
    architectures = [name for name in ARCHITECTURES if name in named] or ARCHITECTURES
    elements = [name for name in ELEMENTS if name in named] or ELEMENTS
    complaints: list[str] = []
    row = "{:<22} {:<8} {:<5} {:>5} {:>7} {:>9} {:>7} {:>9} {:>7}"
    print(row.format("kernel", "device", "type", "size", "threads", "registers", "spilled", "shared B", "matrix"))
    for architecture, element in product(architectures, elements):
        for needs in compile_all(architecture, element):
            print(row.format(*astuple(needs)))
            complaints += [f"{needs.kernel} on {architecture}: {complaint}" for complaint in needs.complaints]
    if complaints:
        raise SystemExit("\n".join(complaints))


if __name__ == "__main__":
    main(sys.argv[1:])
