"""The page of a conversation: which stretch of the log an address shows."""

from __future__ import annotations

import re

import pytest
from django.test import Client as Browser

from conversations.models import ConversationRef
from conversations.store import ConversationStore
from tests.events import event

EVENTS = 60
END = EVENTS - 1
BEYOND = 10**15


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("", (10, END)),
        ("?before=5", (0, 4)),
        (f"?before={BEYOND}", (10, END)),
        ("?after=-1", (0, 49)),
        (f"?after={END}", (EVENTS, END)),
        (f"?after={EVENTS}", (EVENTS, END)),
        (f"?after={BEYOND}", (EVENTS, END)),
        ("?around=30", (6, 55)),
        (f"?around={BEYOND}", (35, END)),
        ("?around=x", (10, END)),
        ("?around=-7", (0, 49)),
    ],
)
@pytest.mark.parametrize("page", ["/c/talk", "/c/talk/events"])
def test_an_address_shows_a_stretch_of_the_log_and_never_more_than_there_is(
    store: ConversationStore, conversation: ConversationRef, page: str, asked: str, shown: tuple[int, int]
) -> None:
    store.append(conversation, [event(f"word {number}") for number in range(EVENTS)])
    text = Browser(headers={"host": "localhost"}).get(page + asked).content.decode()
    places = re.search(r'data-first="(-?\d+)" data-last="(-?\d+)" data-last-seq="(-?\d+)"', text)
    assert places is not None
    assert tuple(map(int, places.groups())) == (*shown, END)


def test_an_image_whose_address_nobody_can_send_keeps_the_page_open(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    raw = r'{"action":"message","source":"agent","args":{"content":"hi","image_urls":["https://x/\ud800"]}}'
    store.append(conversation, [event(raw=raw)])
    answer = Browser(headers={"host": "localhost"}).get("/c/talk")
    assert (answer.status_code, "https://x/\ufffd" in answer.content.decode()) == (200, True)
