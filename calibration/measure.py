"""Measures steps of the real engine, in passes over shuffled points: no drift of the machine is taken for a shape."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from calibration.engine.engine import Engine
from calibration.engine.runner import ModelRunner
from calibration.points import Point
from calibration.samples import Sample, SampleFile, rounded
from simserve.engine.request import Request

Progress = Callable[[float], None]

ENOUGH = 0.05
"""Seconds after which a point is not repeated within a pass."""
REPEATS = 3


class Measured(NamedTuple):
    """Samples, how much a step that was repeated at begin and end moved, and wall-clock over clock time."""

    samples: list[Sample]
    probe_drift: float
    wall_over_cpu: float


class HostTimes(NamedTuple):
    """A step of `num_seqs` decodes of an engine whose model has no work: host seconds around it, and on the device."""

    num_seqs: int
    host: float
    device: float
    graph_device: float | None


def measure(
    runner: ModelRunner, points: Sequence[Point], passes: int, file: SampleFile, progress: Progress
) -> Measured:
    """Execute every point once in each pass; those already in the file are not executed again."""
    samples = file.resume()
    done = {(sample.number, sample.place) for sample in samples}
    total, wall, clock = passes * len(points), 0.0, 0.0
    before = probe(runner, points)
    for number in range(passes):
        order = list(range(len(points)))
        random.Random(number).shuffle(order)
        for index in order:
            if (number, index) in done:
                continue
            at, began = time.perf_counter(), runner.timer()
            sample = take(runner, points[index], number, index)
            wall, clock = wall + time.perf_counter() - at, clock + runner.timer() - began
            file.append(sample)
            samples.append(sample)
            done.add((number, index))
            progress(len(done) / total)
    after = probe(runner, points)
    return Measured(samples, abs(after / before - 1), wall / clock if clock else 1.0)


def take(runner: ModelRunner, point: Point, number: int, index: int) -> Sample:
    """One sample: the median of a few executions where they are short."""
    batch = runner.synthetic_batch(point.decodes, point.chunks, seed=index)
    outputs = [runner.run(batch)]
    while len(outputs) < REPEATS and sum(output.times.total for output in outputs) < ENOUGH:
        outputs.append(runner.run(batch))
    device = rounded(statistics.median(output.times.device for output in outputs))
    total = rounded(statistics.median(output.times.total for output in outputs))
    return Sample(number, index, point, outputs[0].graph, device, total)


def probe(runner: ModelRunner, points: Sequence[Point]) -> float:
    """Seconds of one step of middling size: the same at begin and end, unless the machine changed."""
    decodes = [point for point in points if point.kind == "decode" and not point.held_out]
    batch = runner.synthetic_batch(decodes[len(decodes) // 2].decodes)
    return statistics.median(runner.run(batch).times.device for _ in range(7))


def host_times(idle: ModelRunner, counts: Sequence[int], steps: int = 40) -> list[HostTimes]:
    """What an engine adds around its steps, by the number of sequences; `idle` runs a model without work."""
    found = []
    for count in counts:
        engine = Engine(idle)
        for index in range(count):
            engine.add(Request(index, 0, 4, steps + 8, steps + 8), [1, 2, 3, 4])
        hosts: list[float] = []
        devices: list[float] = []
        graphs: list[float] = []
        captured, timer = idle.use_graphs, idle.timer
        for step in range(steps):
            idle.use_graphs = captured and step % 2 == 0
            output = engine.step()
            began = timer()
            engine.complete(output.plan)
            hosts.append(output.times.total - output.times.device + timer() - began)
            (graphs if output.graph else devices).append(output.times.device)
        idle.use_graphs = captured
        graph = statistics.median(graphs) if captured and graphs else None
        found.append(HostTimes(count, statistics.median(hosts), statistics.median(devices), graph))
    return found


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second, read and written, of copying a tensor far larger than any cache."""
    size = 2**30 if device.type == "cuda" else 2**27
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _fastest(lambda: target.copy_(source), device)


def gemm_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix multiplication."""
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2.0 * size * size * size / _fastest(lambda: left @ right, device)


def _fastest(work: Callable[[], object], device: torch.device, repeats: int = 6) -> float:
    times: list[float] = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            began = time.thread_time()
            work()
            times.append(time.thread_time() - began)
    return min(times)
