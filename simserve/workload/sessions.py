"""Sessions: chats of several turns, each prompt being the previous prompt, its answer and new tokens.

Prompts grow until the chat is over or until a turn (prompt and answer) would not fit into `max_model_len`: there the
chat ends early and is counted. All turns of all chats are drawn at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.spec.workload import SessionsSpec, WorkloadSpec
from simserve.workload.classes import draw_by_class, draw_classes
from simserve.workload.lengths import draw_lengths
from simserve.workload.prompts import draw_prefixes
from simserve.workload.streams import random_stream

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Chats(NamedTuple):
    """Turns as rows, those of a session consecutive; `fits` is false from the first turn on that is too long."""

    session: IntArray
    turn: IntArray
    class_index: IntArray
    input_len: IntArray
    output_len: IntArray
    max_tokens: IntArray
    prefix_group: IntArray
    """Shared beginning of the chat, as in `simserve.workload.prompts`."""
    prefix_len: IntArray
    fits: BoolArray

    @property
    def shortened(self) -> int:
        """Number of sessions that end early."""
        return len(np.unique(self.session[~self.fits]))

    def only(self, rows: BoolArray | slice) -> "Chats":
        """These rows."""
        return Chats._make(column[rows] for column in self)


def draw_chats(
    workload: WorkloadSpec, sessions: SessionsSpec, num_sessions: int, max_model_len: int, seed: int
) -> Chats:
    """Draw all turns of `num_sessions` chats; the first sessions of a longer draw are the draw of fewer."""
    class_of_session = draw_classes(workload, num_sessions, seed)
    turns = draw_lengths(sessions.turns, num_sessions, random_stream(seed, "turns"))
    ends = np.cumsum(turns)
    starts = ends - turns
    session = np.repeat(np.arange(num_sessions), turns)
    turn = np.arange(len(session)) - np.repeat(starts, turns)
    class_index = class_of_session[session]
    added = draw_by_class(workload, "input", class_index, seed)
    if sessions.first_input is not None:
        added[starts] = draw_lengths(sessions.first_input, num_sessions, random_stream(seed, "first_input"))
    prefixes = draw_prefixes(workload, class_of_session, seed)
    added[starts] += prefixes.added
    output_len = draw_by_class(workload, "output", class_index, seed)
    max_tokens = draw_by_class(workload, "max_tokens", class_index, seed, otherwise=output_len)
    output_len = np.minimum(output_len, max_tokens)
    added[1:] += np.where(turn[1:] > 0, output_len[:-1], 0)
    input_len = _within_session(added, starts, turns)
    too_long = (input_len + output_len > max_model_len).astype(np.int64)
    fits = _within_session(too_long, starts, turns) == 0
    group, shared = prefixes.group[session], prefixes.length[session]
    return Chats(session, turn, class_index, input_len, output_len, max_tokens, group, shared, fits)


def _within_session(added: IntArray, starts: IntArray, turns: IntArray) -> IntArray:
    """Running totals that begin anew with each session."""
    totals = np.cumsum(added)
    return totals - np.repeat(totals[starts] - added[starts], turns)


def draw_turns(
    workload: WorkloadSpec, sessions: SessionsSpec, num_requests: int, max_model_len: int, seed: int
) -> Chats:
    """Draw as many chats as `num_requests` turns that fit need; the last chat is cut there.

    Raises:
        ScenarioError: hardly a first turn fits into `max_model_len`.
    """
    num_sessions = 1 + num_requests // 8
    while True:
        chats = draw_chats(workload, sessions, num_sessions, max_model_len, seed)
        fitting = np.flatnonzero(chats.fits)
        if len(fitting) >= num_requests:
            return chats.only(slice(int(fitting[num_requests - 1]) + 1))
        if num_sessions > 1000 + 100 * num_requests:
            raise ScenarioError(
                f"workload.sessions: only {len(fitting)} turns of {num_sessions} chats fit into engine.max_model_len = "
                f"{max_model_len}; shorten workload.input or workload.sessions.first_input"
            )
        num_sessions *= 2
