"""One interface for work here and in other processes: same answers, same order of errors."""

import os

import pytest

from simserve.planning.executor import default_workers, open_executor, results


def square(number: int) -> int:
    if number < 0:
        raise ValueError("no root")
    return number * number


def process() -> int:
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_results_and_errors_come_back_through_futures(workers: int) -> None:
    with open_executor(workers) as executor:
        futures = [executor.submit(square, number) for number in range(5)]
        broken = executor.submit(square, -1)
        assert [future.result() for future in futures] == [0, 1, 4, 9, 16]
        with pytest.raises(ValueError, match="no root"):
            broken.result()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_comes_back_with_its_result(workers: int) -> None:
    with open_executor(workers) as executor:
        assert dict(results(executor, square, range(20))) == {number: number**2 for number in range(20)}


def test_without_processes_results_come_one_by_one_and_stop_at_an_error() -> None:
    seen = []

    def note(number: int) -> int:
        seen.append(number)
        return square(number)

    with open_executor(1) as executor:
        stream = results(executor, note, [1, -1, 2])
        assert next(stream) == (1, 1)
        assert seen == [1]
        with pytest.raises(ValueError, match="no root"):
            next(stream)
    assert seen == [1, -1]


def test_one_worker_is_this_process_and_more_are_not() -> None:
    with open_executor(1) as here:
        assert here.submit(process).result() == os.getpid()
    with open_executor(2) as elsewhere:
        assert elsewhere.submit(process).result() != os.getpid()


def test_no_worker_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        open_executor(0)


def test_workers_are_never_more_than_the_tasks() -> None:
    assert default_workers(1) == 1
    assert default_workers(0) == 1
    assert default_workers(10_000) >= 1
