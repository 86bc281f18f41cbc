"""Which requests that change something are let in to a thread, and which wait."""

from __future__ import annotations

import asyncio

import pytest

from convserver.serving.admission import THREADS, WRITERS, WRITERS_OF_ONE, Admission, Permit

SOON_S = 0.05
PATIENT_S = 20.0


async def places(admission: Admission, conversation_id: str | None, count: int) -> list[Permit]:
    return [await admission.place(conversation_id, within_s=PATIENT_S) for _ in range(count)]


async def test_a_few_change_one_conversation_and_others_go_on() -> None:
    admission = Admission()
    first, *_ = held = await places(admission, "one", WRITERS_OF_ONE)
    with pytest.raises(TimeoutError):
        await admission.place("one", within_s=SOON_S)
    other = await admission.place("another", within_s=PATIENT_S)
    first.leave()
    first.leave()
    last = await admission.place("one", within_s=PATIENT_S)
    with pytest.raises(TimeoutError):  # left twice, it was free once
        await admission.place("one", within_s=SOON_S)
    for place in (*held, other, last):
        place.leave()


async def test_threads_are_left_to_those_who_read() -> None:
    assert WRITERS < THREADS
    admission = Admission()
    held = [await admission.place(str(number), within_s=PATIENT_S) for number in range(WRITERS)]
    for conversation_id in ("0", "fresh", None):
        with pytest.raises(TimeoutError):
            await admission.place(conversation_id, within_s=SOON_S)
    held[0].leave()
    await places(admission, "fresh", 1)


async def test_who_waits_for_one_conversation_takes_no_place_of_all() -> None:
    admission = Admission()
    held = await places(admission, "one", WRITERS_OF_ONE)
    waiting = [asyncio.create_task(admission.place("one", within_s=PATIENT_S)) for _ in range(WRITERS)]
    await asyncio.sleep(0)
    await places(admission, None, WRITERS - WRITERS_OF_ONE)
    for place in held:
        place.leave()
    let_in, still_waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert len(let_in) <= WRITERS_OF_ONE
    for task in still_waiting:
        task.cancel()
    await asyncio.gather(*still_waiting, return_exceptions=True)


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    admission = Admission()
    held = await places(admission, "one", WRITERS_OF_ONE)
    gone = asyncio.create_task(admission.place("one", within_s=PATIENT_S))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    for place in held:
        place.leave()
    await places(admission, "one", WRITERS_OF_ONE)
    await places(admission, None, WRITERS - WRITERS_OF_ONE)
