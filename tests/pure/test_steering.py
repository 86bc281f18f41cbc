"""What steers a loop changes only as its table allows, whatever is requested and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.loops.steering import (
    TRANSITIONS,
    ForbiddenTransition,
    Interruption,
    PauseRequest,
    Stage,
    State,
    Stay,
    Steering,
    require_allowed,
)

THROUGH = 7
Change = Callable[[Steering], Steering]

CHANGES: list[Change] = [
    Steering.begin_turn,
    Steering.begin_play,
    Steering.end_play,
    Steering.end_turn,
    Steering.want_pause,
    Steering.drop_pause,
    Steering.take_pause_back,
    Steering.restore_pause,
    Steering.resume,
    lambda steering: steering.interrupt(through=THROUGH),
    lambda steering: steering.supersede(through=THROUGH),
    Steering.forget_runs,
    Steering.leave,
    Steering.end,
]

WAITING = Steering()
PREPARING = WAITING.begin_turn()
PLAYING = PREPARING.begin_play()
ENDING = PLAYING.end_play()
TURN = [PREPARING, PLAYING, ENDING]
INTERRUPTIBLE = [PREPARING, PLAYING]


def states_of(steering: Steering) -> tuple[State, ...]:
    return (steering.stage, steering.pause, steering.interruption, steering.stay)


def changed(steering: Steering) -> Iterator[Steering]:
    """Yield what each change that is not forbidden makes of it."""
    for change in CHANGES:
        try:
            yield change(steering)
        except ForbiddenTransition:
            continue


def transitions_made() -> set[tuple[State, State]]:
    """Return each change from one state to another on any way from the beginning."""
    made: set[tuple[State, State]] = set()
    found, left = {WAITING}, [WAITING]
    while left:
        before = left.pop()
        for after in changed(before):
            made.update(zip(states_of(before), states_of(after), strict=True))
            if after not in found:
                found.add(after)
                left.append(after)
    return {(before, after) for before, after in made if before is not after}


# The table


ALLOWED = [(before, after) for before, all_after in TRANSITIONS.items() for after in all_after]
FORBIDDEN = [pair for pair in product(TRANSITIONS, repeat=2) if pair not in ALLOWED]


def test_the_table_names_every_state() -> None:
    assert set(TRANSITIONS) == {*Stage, *PauseRequest, *Interruption, *Stay}


def test_what_the_table_allows_is_allowed(subtests: pytest.Subtests) -> None:
    for before, after in ALLOWED:
        with subtests.test(before=str(before), after=str(after)):
            require_allowed(before, after)


def test_everything_else_raises(subtests: pytest.Subtests) -> None:
    for before, after in FORBIDDEN:
        refused = pytest.raises(ForbiddenTransition, match=f"{after} must not follow {before}")
        with subtests.test(before=str(before), after=str(after)), refused:
            require_allowed(before, after)


def test_the_table_allows_what_steps_and_requests_do_and_nothing_more() -> None:
    assert transitions_made() == {(before, after) for before, after in ALLOWED if before is not after}


# The steps of a turn


def test_a_step_that_is_not_next_raises(subtests: pytest.Subtests) -> None:
    steps: dict[str, tuple[Change, Sequence[Steering]]] = {
        "begin_turn": (Steering.begin_turn, [WAITING]),
        "begin_play": (Steering.begin_play, [PREPARING]),
        "end_play": (Steering.end_play, [PLAYING]),
        "end_turn": (Steering.end_turn, [PREPARING, ENDING]),
        "interrupt": (lambda steering: steering.interrupt(through=THROUGH), INTERRUPTIBLE),
        "supersede": (lambda steering: steering.supersede(through=THROUGH), [PLAYING]),
    }
    for name, (step, begins_at) in steps.items():
        for steering in [WAITING, *TURN]:
            with subtests.test(name, steering=steering.stage.name):
                if steering in begins_at:
                    assert step(steering) != steering
                else:
                    with pytest.raises(ForbiddenTransition):
                        step(steering)


@pytest.mark.parametrize(
    "steering", [WAITING, *TURN, WAITING.leave()], ids=lambda each: f"{each.stage.name}-{each.stay.name}"
)
def test_a_loop_is_ended_once(steering: Steering) -> None:
    with pytest.raises(ForbiddenTransition):
        steering.end().end()


def test_a_loop_that_ends_does_not_leave_as_well() -> None:
    assert WAITING.end().leave() == WAITING.end()


# Requests


@pytest.mark.parametrize("steering", [WAITING, *TURN], ids=lambda steering: steering.stage.name)
def test_a_pause_that_has_taken_effect_leaves_nothing_behind(steering: Steering) -> None:
    pausing = steering.want_pause()
    assert pausing.is_pause_wanted
    assert pausing.drop_pause() == steering


def test_a_pause_that_is_resumed_while_there_is_no_turn_leaves_nothing_behind() -> None:
    assert WAITING.want_pause().resume() == WAITING


@pytest.mark.parametrize("steering", TURN, ids=lambda steering: steering.stage.name)
def test_a_turn_that_may_be_pausing_just_now_goes_on_however_often_that_is_asked_for(
    steering: Steering,
) -> None:
    taken_back = steering.want_pause().take_pause_back()
    assert taken_back.pause is PauseRequest.TAKEN_BACK
    assert steering.want_pause().resume() == taken_back.resume() == taken_back.take_pause_back() == taken_back


def test_a_pause_that_was_taken_back_is_forgotten_at_the_end_of_the_turn() -> None:
    taken_back = ENDING.want_pause().take_pause_back()
    assert (taken_back.pause, taken_back.end_turn()) == (PauseRequest.TAKEN_BACK, WAITING)


def test_a_pause_that_is_still_wanted_outlives_the_turn() -> None:
    assert ENDING.want_pause().end_turn() == WAITING.want_pause()


def test_a_pause_that_was_taken_back_can_be_wanted_again() -> None:
    taken_back = PLAYING.want_pause().take_pause_back()
    assert taken_back.restore_pause() == taken_back.want_pause() == PLAYING.want_pause()


def test_an_interruption_leaves_a_pause_wanted_and_forgets_that_one_was_taken_back() -> None:
    interrupted = PLAYING.interrupt(through=THROUGH)
    assert PLAYING.want_pause().interrupt(through=THROUGH) == interrupted.want_pause()
    assert PLAYING.want_pause().take_pause_back().interrupt(through=THROUGH) == interrupted


@pytest.mark.parametrize("steering", INTERRUPTIBLE, ids=lambda steering: steering.stage.name)
def test_an_interruption_ends_with_its_turn(steering: Steering) -> None:
    interrupted = steering.interrupt(through=THROUGH)
    assert (interrupted.is_interrupted, interrupted.interrupted_through) == (True, THROUGH)
    ending = interrupted.begin_play().end_play() if steering is PREPARING else interrupted.end_play()
    assert ending.end_turn() == WAITING


def test_the_last_request_decides_whether_an_interrupted_turn_is_resumed() -> None:
    interrupted = PLAYING.interrupt(through=THROUGH)
    resumed = interrupted.resume()
    assert (resumed.interruption, resumed.interrupted_through) == (Interruption.RESUMED, THROUGH)
    assert resumed.want_pause() == interrupted.want_pause()
    assert resumed.interrupt(through=THROUGH) == resumed.forget_runs() == interrupted


def test_an_interruption_gives_up_the_inputs_up_to_the_last_one() -> None:
    assert PLAYING.interrupt(through=3).interrupt(through=THROUGH) == PLAYING.interrupt(through=THROUGH)


def test_only_an_interrupted_turn_is_resumed_after_its_end() -> None:
    assert PLAYING.resume() == PLAYING


# Any requests at any moment


def pause(steering: Steering) -> Steering:
    """Pause as a loop does: at once where there is no turn."""
    wanted = steering.want_pause()
    return wanted if wanted.is_in_turn else wanted.drop_pause()


def repeat(steering: Steering) -> Steering:
    """Take a message that was stored before, and asks for a run."""
    taken_back = steering.take_pause_back()
    return taken_back.restore_pause() if steering.is_pause_wanted else taken_back


def interrupt(steering: Steering) -> Steering:
    return steering.interrupt(through=THROUGH) if steering.is_interruptible else steering.forget_runs()


def close(steering: Steering) -> Steering:
    return steering if steering.stay is Stay.ENDS else steering.end()


def go_on(steering: Steering) -> Steering:
    """Take the next step of a turn, or begin one."""
    match steering.stage:
        case Stage.WAITING:
            return steering.drop_pause().begin_turn()
        case Stage.PREPARING:
            return steering.end_turn() if steering.is_interrupted else steering.begin_play()
        case Stage.PLAYING:
            return steering.end_play()
        case Stage.ENDING:
            return steering.end_turn().drop_pause()


def fail(steering: Steering) -> Steering:
    """End the turn at once, as where it cannot be prepared or the loop is cancelled."""
    if steering.stage is Stage.PLAYING:
        steering = steering.end_play()
    return steering.end_turn() if steering.is_in_turn else steering


happening = st.sampled_from(
    [
        pause,
        Steering.want_pause,  # before a repair it does not take effect
        Steering.resume,
        Steering.take_pause_back,
        repeat,
        interrupt,
        Steering.leave,
        lambda steering: close(steering.stop(through=THROUGH)),
        lambda steering: close(steering.evict()),
        close,
        go_on,
        go_on,  # twice as often, so that turns come to their ends
        fail,
    ]
)


@given(st.lists(happening, max_size=60))
def test_nothing_that_happens_to_a_loop_is_forbidden(happenings: list[Change]) -> None:
    steering = Steering()
    for happens in happenings:
        steering = happens(steering)
        assert steering.is_in_turn or not steering.is_interrupted
        assert steering.is_interrupted == (steering.interrupted_through is not None)
