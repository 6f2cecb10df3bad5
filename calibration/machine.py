"""Where a calibration ran: the machine and the software, in words, without names of hosts, users or folders."""

import platform
from pathlib import Path
from typing import Any

import numpy
import torch


def machine(device: torch.device) -> dict[str, str]:
    """The device, its clocks and driver where it tells, and the CPU that feeds it."""
    found = {"cpu": _cpu_model(), "cpu_threads": str(torch.get_num_threads()), "architecture": platform.machine()}
    if device.type == "cuda":
        facts: Any = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": facts.name,
            "gpu_memory": str(facts.total_memory),
            "compute_capability": f"{facts.major}.{facts.minor}",
            "processors": str(facts.multi_processor_count),
        }
    return found


def software() -> dict[str, str]:
    """Versions of what the steps went through."""
    from simserve import __version__

    try:
        import triton

        triton_version = str(triton.__version__)
    except ImportError:
        triton_version = "absent"
    return {
        "simserve": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": triton_version,
        "numpy": numpy.__version__,
        "cuda": str(torch.version.cuda or "none"),
    }


def memory_bytes(device: torch.device) -> int:
    """Total memory of the device."""
    if device.type == "cuda":
        total: int = torch.cuda.get_device_properties(device).total_memory
        return total
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 16 * 2**30


def _cpu_model() -> str:
    names = [line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
