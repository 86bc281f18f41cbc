"""The methods of QuerySets: those that return one ask the database nothing while it is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.events import Dialect, EventFilter
from conversations.models import Conversation, ConversationRef, ListOrder
from conversations.search.fulltext import questions
from conversations.search.fulltext.search import by_title
from sessions_app.models import Endpoint, SecretKind
from sessions_app.processes import this_process

SELF = "Self"


def building() -> Iterator[tuple[str, Any, Callable[..., Any]]]:
    """Yield every method of this project's QuerySets that returns a QuerySet, with a name and its model."""
    for model in apps.get_models():
        rows = type(model._default_manager.all())
        if rows is QuerySet or not rows.__module__.startswith(("conversations.", "sessions_app.")):
            continue
        for name, method in vars(rows).items():
            returned = getattr(method, "__annotations__", {}).get("return")
            if returned == SELF and not name.startswith("_"):
                yield f"{model.__name__}.{name}", model, method


def value_of(annotation: str, conversation: ConversationRef, alice: User) -> Any:
    """Return a value for a parameter of this type."""
    samples: dict[str, Any] = {
        "int": 1,
        "str": "some text",
        "bool": True,
        "date": timezone.now().date(),
        "datetime": timezone.now(),
        "Moment": "created_at",
        "ListOrder": ListOrder.TITLE,
        "Dialect": Dialect.V1,
        "EventFilter": EventFilter(text="some text"),
        "ConversationRef": conversation,
        "Conversation": Conversation(pk=conversation.pk),
        "ConversationQuerySet": Conversation.objects.all(),
        "AbstractBaseUser": alice,
        "User": alice,
        "AnonymousUser": AnonymousUser(),
        "Process": this_process(),
        "Endpoint": Endpoint(pk=1),
        "SecretKind": SecretKind.PROVIDER_TOKEN,
        "timedelta": timedelta(days=1),
        "QuerySet[Any]": Conversation.objects.all(),
    }
    if annotation.startswith(("Iterable[", "Collection[", "Sequence[")):
        return [value_of(annotation.partition("[")[2].rpartition("]")[0], conversation, alice)]
    return samples[annotation.partition(" | ")[0]]


def test_a_queryset_is_built_without_a_query(
    subtests: pytest.Subtests, conversation: ConversationRef, alice: User
) -> None:
    for title, model, method in building():
        with subtests.test(title):
            positional: list[Any] = []
            named: dict[str, Any] = {}
            for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
                value = value_of(parameter.annotation, conversation, alice)
                if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                    named[name] = value
                else:
                    positional.append(value)
            with CaptureQueriesContext(connection) as asked:
                rows = method(model._default_manager.all(), *positional, **named)
            assert isinstance(rows, QuerySet)
            assert [each["sql"] for each in asked] == []


def test_a_search_for_titles_asks_the_index_once_however_often_it_is_executed(
    conversation: ConversationRef,
) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(title="Some Text of alice's")
    with CaptureQueriesContext(connection) as asked:
        rows = Conversation.objects.active().matching(title="some text")
        branches = by_title(Conversation.objects.all(), questions.read('"some text" OR else'))
    assert len(asked) == 0
    with CaptureQueriesContext(connection) as asked:
        assert (rows.count(), [row.pk for row in rows]) == (1, [conversation.pk])
    assert len(asked) == 3
    assert [row.pk for row in branches] == [conversation.pk]
