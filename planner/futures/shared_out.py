"""Independent pieces of one piece of work, shared out over processes that are forked from this one.

A piece depends on nothing but what all of them start from, so the number of processes changes nothing in the results.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import highspy

from planner.errors import InputError, PlannerError, Problem

Piece = TypeVar("Piece")
Result = TypeVar("Result")

CAN_FORK = sys.platform == "linux"
"""Elsewhere all is done in this process: what the pieces start from is too large to be sent."""


def each(work: Callable[[Piece], Result], pieces: Sequence[Piece], processes: int = 1) -> Iterator[Result]:
    """The results of the pieces, in their order.

    Raises
    ------
    InputError
        If a piece does.
    PlannerError
        If the system ends one of the processes.
    """
    count = min(processes, len(pieces))
    if count <= 1 or not CAN_FORK:
        yield from map(work, pieces)
        return
    # The solver's own threads do not live on in a fork, where it would wait for them.
    highspy.Highs.resetGlobalScheduler(True)
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(count, context, _begin, (work,)) as pool:
            for found in _started(pool, pieces):
                if isinstance(found, _Refused):
                    raise InputError(found.problems)
                yield found
    except BrokenProcessPool as error:
        text = f"A process that planned another future was ended, perhaps for lack of memory ({count} processes)"
        raise PlannerError(f"{text}; try with one") from error


class _Refused:
    """Input that a piece could not use; as an exception it would lose its problems on the way."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems


def _started(pool: ProcessPoolExecutor, pieces: Sequence[Any]) -> Iterator[Any]:
    """Begin the work. From Python 3.12 on, forking beside threads warns; those here prepare for forks themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return pool.map(_do, pieces)


_at_work: list[Callable[[Any], Any]] = []
"""What this process does, where it is one of several: set once, when it begins."""


def _begin(work: Callable[[Any], Any]) -> None:
    gc.freeze()  # what a fork inherits is never garbage: looking for some would copy all of its pages
    _at_work[:] = [work]


def _do(piece: Any) -> Any:
    try:
        return _at_work[0](piece)
    except InputError as error:
        return _Refused(error.problems)
