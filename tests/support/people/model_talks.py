"""Conversations of tests with a model on loopback: what a user says, and what is read of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from django.contrib.auth.models import User

from sessions_app import astore
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.support.people.clients import Client
from tests.support.servers.model_server import Answer, Asked, model_server
from tests.support.wires.event_views import is_notice

Frame = dict[str, Any]
Answers = Callable[[Asked], Answer]
KEY = "sk-1234567890"


@asynccontextmanager
async def model(
    user: User, *answers: Answer | Answers, name: str = "openai/gpt-x"
) -> AsyncIterator[list[Asked]]:
    """Serve these answers, the last one for ever, to a model that the user has set; yield what is asked."""
    left = list(answers)

    def next_answer(asked: Asked) -> Answer:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(asked) if callable(answer) else answer

    with model_server(next_answer) as (base_url, asked):
        values = {"llm_model": name, "llm_base_url": base_url}
        secrets = {SettingSecret.LLM_API_KEY: KEY}
        await astore.call(user_settings.change_settings, user.pk, values, secrets=secrets)
        yield asked


async def said(client: Client, text: str) -> list[Frame]:
    """Send a message and return the frames through the end of its turn."""
    start = len(client.frames)
    await client.send({"type": "message", "text": text})
    await client.until("event", kind="turn")
    return client.frames[start:]


def events(frames: list[Frame], kind: str, source: str | None = None) -> list[Frame]:
    return [
        frame
        for frame in frames
        if frame["type"] == "event" and frame["kind"] == kind and source in (None, frame["source"])
    ]


def answers_of(frames: list[Frame]) -> list[str]:
    return [str(event["text"]) for event in events(frames, "message", "agent")]


def notices_of(frames: list[Frame]) -> list[str]:
    """Return what the server has told the user."""
    return [str(event["text"]) for event in events(frames, "other") if is_notice(event["event"])]


async def error_of(client: Client) -> str:
    """Return what the user reads about a turn that has failed."""
    [turn] = events(client.frames, "turn")
    if turn["text"] != "error":
        return str(turn["text"])
    return str((await client.until("event", kind="error"))["text"])  # V1 has an event for it


def told(asked: Asked) -> list[tuple[str, str]]:
    """Return the messages of a request, by their roles, without the system prompt."""
    messages = [each for each in asked.body["messages"] if each["role"] not in ("system", "developer")]
    return [(each["role"], text_of(each["content"])) for each in messages]


def text_of(content: Any) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else "\n".join(each.get("text", "") for each in content)


async def until_shown(client: Client, text: str) -> None:
    """Return once a piece of an answer has been shown that ends like this."""
    while not (await client.until("delta"))["text"].endswith(text):
        pass


async def until_paused(client: Client) -> None:
    """Return once the agent is said to be paused."""
    while True:
        changes = (await client.until("conversation"))["changes"]
        if changes.get("loop", {}).get("execution_status") == "paused":
            return
