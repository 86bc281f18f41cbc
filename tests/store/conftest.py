"""Conversations on a server where a model answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app.agents.sources import BUILT_IN_AGENTS


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(request: pytest.FixtureRequest, alice: User, configured: Callable[..., None]) -> ConversationRef:
    """An empty conversation of either wire, which has a title."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    return creation.create(alice, conversation_id="talk", version=request.param, title="A talk")


@pytest.fixture
def v0_talk(alice: User, configured: Callable[..., None]) -> ConversationRef:
    """An empty conversation of the V0 wire, for what is the same on both."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    return creation.create(alice, conversation_id="talk", version=Version.V0, title="A talk")
