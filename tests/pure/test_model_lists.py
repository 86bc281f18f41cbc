"""The lists of models: what is read of them, kept for a while, and said when there is none."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.outbound import model_lists
from sessions_app.outbound.model_lists import ListedModel, ModelServer, ServerModels, lists_of
from sessions_app.outbound.model_trial import ANSWER_MAX_BYTES
from tests.support.servers.model_server import Answer, model_server

USER = 7


@pytest.fixture(autouse=True)
def forgotten() -> None:
    model_lists._kept.clear()


async def listed(answer: Answer) -> ServerModels:
    with model_server(lambda asked: answer) as (base_url, _):
        [found] = await lists_of(USER, [ModelServer(base_url, "")])
    return found


async def test_what_servers_say_of_their_models_is_read_in_their_own_words() -> None:
    rows: list[dict[str, Any]] = [
        {"id": "vllm", "max_model_len": 4096},
        {"id": "Studio", "max_context_length": 8192, "loaded_context_length": 2048},
        {"id": "llama", "meta": {"n_ctx_train": 131_072}},
        {
            "id": "router/one",
            "context_length": 200_000,
            "pricing": {"prompt": "0.000003", "completion": "0.000015"},
        },
        {"id": "odd", "context_length": "much", "pricing": {"prompt": "-1", "completion": "nan"}},
        {"id": "x" * 201},
        {"id": "nul\0"},
        {"name": "without an id"},
    ]
    assert await listed(Answer(body={"data": rows})) == ServerModels(
        [
            ListedModel("llama", 131_072),
            ListedModel("odd"),
            ListedModel("router/one", 200_000, 3.0, 15.0),
            ListedModel("Studio", 2048),
            ListedModel("vllm", 4096),
        ]
    )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer(404, {}), "has no list of models"),
        (Answer(401, {}), "rejected the key"),
        (Answer(body="<html>"), "isn't JSON"),
        (Answer(body="x" * (ANSWER_MAX_BYTES + 1)), "too long"),
        (Answer(500, {}), "The server failed (500)"),
    ],
)
async def test_a_server_without_a_list_is_a_sentence(answer: Answer, problem: str) -> None:
    found = await listed(answer)
    assert (found.models, problem in found.problem) == ((), True)


async def test_a_list_is_kept_for_its_user_and_key_until_it_is_asked_for_again() -> None:
    with model_server(lambda asked: Answer(body={"data": [{"id": "m"}]})) as (base_url, asked):
        server = ModelServer(base_url, "one")
        for user_id, key, fresh in [
            (USER, "one", False),
            (USER, "one", False),
            (USER, "two", False),
            (8, "one", False),
            (USER, "one", True),
        ]:
            await lists_of(user_id, [server._replace(key=key)], is_fresh=fresh)
    assert [each.key for each in asked] == ["Bearer one", "Bearer two", "Bearer one", "Bearer one"]
