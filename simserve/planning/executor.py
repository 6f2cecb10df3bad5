"""Where the runs of a sweep or a search happen: in this process or in others, behind `concurrent.futures.Executor`.

The callers submit functions and read futures, so whatever else offers that interface (a cluster's client, say) serves
as well.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class SerialExecutor(Executor):
    """Runs each call when it is submitted, in this process: no start-up cost, and errors where they arise."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` now; the future that comes back is done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ProcessExecutor(ProcessPoolExecutor):
    """Processes that end a Ctrl-C as one: each stops its work and starts no other, and none prints a traceback.

    Processes are spawned, not forked: a fork beside a progress bar's thread or numpy's threads may deadlock.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers, mp_context=get_context("spawn"))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedule a call. A process that this starts inherits that SIGINT is ignored, until it has work."""
        call: Callable[[], T] = partial(_interruptible, fn, *args, **kwargs)
        if threading.current_thread() is not threading.main_thread():
            return super().submit(call)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return super().submit(call)
        finally:
            signal.signal(signal.SIGINT, before)


class _Interrupt:
    """Whether this worker was told to stop."""

    came = False


def _interruptible(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """In a worker: the call, which SIGINT ends, and with it all calls after it."""
    if _Interrupt.came:
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return fn(*args, **kwargs)
    except KeyboardInterrupt:
        _Interrupt.came = True
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def open_executor(workers: int) -> Executor:
    """Executor with that many processes; one worker is this process itself."""
    if workers < 1:
        raise ValueError(f"workers: got {workers}, expected 1 or more")
    return SerialExecutor() if workers == 1 else ProcessExecutor(workers)


def results(executor: Executor, fn: Callable[[S], T], items: Iterable[S]) -> Iterator[tuple[S, T]]:
    """(item, fn(item)) of every item, in the order in which they finish; what was not begun is dropped on an error."""
    pending: dict[Future[T], S] = {}
    try:
        for item in items:
            future = executor.submit(fn, item)
            if future.done():
                yield item, future.result()
            else:
                pending[future] = item
        for future in as_completed(pending):
            yield pending[future], future.result()
    finally:
        for future in pending:
            future.cancel()


def default_workers(tasks: int) -> int:
    """As many processes as this process may use cores, and no more than there are tasks."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, tasks))
