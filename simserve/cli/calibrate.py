"""`simserve calibrate` and `simserve validate live`: the real engine of `calibration/`, which needs torch."""

import importlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from simserve.cli.arguments import Force, Overrides
from simserve.cli.console import SLO_MISSED, fail, print_table, progress_bar, say

Device = Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where the engine runs.")]


def _part(name: str) -> Any:
    """A module of `calibration/`, loaded now: torch takes seconds, and may be absent."""
    try:
        importlib.import_module("torch")
        importlib.import_module("scipy")
    except ImportError as error:
        fail(f"{error.name} is not installed, and calibration needs it: pip install 'simserve[calibrate]'")
    return importlib.import_module(f"calibration.{name}")


def _pin(device: str) -> None:
    """Keep this process on one core of a CPU: a thread that moves finds its caches cold."""
    if device == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def calibrate(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", show_default=False, help="Folder for profile.yaml and samples."),
    ],
    device: Device = "cpu",
    model: Annotated[
        str, typer.Option("--model", metavar="NAME|config.json", help="Llama-like model; weights are random.")
    ] = "tiny-llama",
    dtype: Annotated[str, typer.Option("--dtype", metavar="bf16|fp16|fp32", help="Format of weights and KV.")] = "bf16",
    base: Annotated[
        str | None, typer.Option("--base", metavar="PROFILE", help="Profile with the data sheet of this device.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid: half a minute, for a first look.")] = False,
    passes: Annotated[int, typer.Option("--passes", min=2, metavar="N", help="Times that every step is taken.")] = 3,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=16, metavar="N", help="Largest step to measure.")
    ] = None,
    bound: Annotated[
        float, typer.Option("--bound", min=0, max=1, metavar="SHARE", help="Error on held-out steps that is refused.")
    ] = 0.08,
    force: Force = False,
) -> None:
    """Measure the steps of a real engine on this machine and write them as a hardware profile.

    Interrupted, it goes on where it stopped when it is called again. An error on held-out steps beyond the bound is a
    failure: nothing is written but the samples.

    Example: simserve calibrate --device cuda --model llama-3.1-8b --base h200-sxm-141gb -o hardware_profiles/mine
    """
    part = _part("calibrate")
    if (output / "profile.yaml").exists() and not force:
        raise FileExistsError(f"{output / 'profile.yaml'} exists")
    if (output / "profile.yaml").exists():  # that calibration is complete: begin anew
        (output / "samples.csv").unlink(missing_ok=True)
    request = part.Request(
        output, device=device, model=model, dtype=dtype, quick=quick, passes=passes, base=base, bound=bound,
        max_tokens=max_tokens,
    )  # fmt: skip
    _pin(device)
    with progress_bar("measuring", patience=0) as progress:
        done = part.calibrate(request, progress, say)
    rows = [
        [form, *(f"{100 * error:.1f} %" for error in (errors.mape, errors.p95, errors.bias))]
        for form, errors in done.fitted.candidates.items()
    ]
    note = f"kept: {done.fitted.fit.form}; noise floor of the samples {100 * done.fitted.noise_floor:.1f} %"
    print_table("Errors on held-out steps", ["form", "mean", "p95", "bias"], rows, note)
    say(f"wrote {done.profile}; use it as cluster.gpu={done.profile}")


def live(
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME|DIR", show_default=False, help="Profile that was calibrated here.")
    ],
    load: Annotated[
        str, typer.Option("--load", metavar="SHARES", help="Shares of what the engine can serve.")
    ] = "0.3,0.6,0.85",
    device: Device = "cpu",
    model: Annotated[
        str | None, typer.Option("--model", metavar="config.json", help="If the calibrated model is a file.")
    ] = None,
    requests: Annotated[int, typer.Option("--requests", min=10, metavar="N", help="Requests of each run.")] = 100,
    repetitions: Annotated[int, typer.Option("--repetitions", min=2, metavar="N", help="Real runs of each load.")] = 3,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Save both sides as runs, and their picture.")
    ] = None,
    overrides: Overrides = None,
    force: Force = False,
) -> None:
    """Serve a workload on the real engine and simulate it; print both, and how far the engine agrees with itself.

    Every step executes for real under a virtual clock that moves on by the step's measured time. The simulator is then
    shown to decide the same batches when it is given the same times. KEY=VALUE changes the workload or the engine:
    shared prefixes, chats, lengths, KV blocks.

    Exit code 3: an error exceeds its bound, or the machine is too noisy to tell.

    Example: simserve validate live --profile hardware_profiles/mine --load 0.3,0.6,0.85 -o live
    """
    try:
        loads = [float(share) for share in load.split(",")]
    except ValueError:
        loads = []
    if not loads or min(loads) <= 0:
        fail(f"--load {load}: expected shares such as 0.3,0.6,0.85")
    part, comparison = _part("validate_live"), _part("comparison")
    settings = part.Settings(profile, loads, device, model, requests, repetitions, overrides=overrides or ())
    _pin(device)
    with progress_bar("serving", patience=0) as progress:
        compared = part.validate_live(settings, progress)
    for each in compared:
        _print(each, comparison.METRICS)
    if out is not None:
        comparison.save(compared, out, force)
        say(f"wrote {out}")
    verdicts = {each.verdict for each in compared}
    if verdicts != {"passed"}:
        noisy = "the machine is noisy: the real engine's own runs, or the calibration's, lie too far apart to tell"
        say(noisy if "noisy" in verdicts else "the simulator is off by more than the bounds")
        raise typer.Exit(SLO_MISSED)


def _print(each: Any, names: dict[str, str]) -> None:
    rows = [
        [
            f"{names[line.metric]} {line.statistic}",
            f"{line.real * 1e3:.4g} ms",
            f"{line.simulated * 1e3:.4g} ms",
            f"{100 * line.error:+.1f} %",
            f"{100 * line.spread:.1f} %",
            f"{100 * line.bound:.0f} %",
        ]
        for line in each.lines
    ]
    biases = ", ".join(f"{100 * bias:+.1f} %" for bias in each.biases)
    note = f"{each.verdict}; step times simulated over measured, each run: {biases}; batches and their order identical"
    title = f"Load {each.load:.0%}: {each.rate:.3g} requests/s"
    print_table(title, ["metric", "real", "simulated", "error", "real spread", "bound"], rows, note)
