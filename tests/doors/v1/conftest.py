"""What the tests of the V1 door share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings

from sessions_app.agents.sources import BUILT_IN_AGENTS


@pytest.fixture(autouse=True)
def demo_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo agent answer: clients start conversations with models that only they can reach."""
    configuration = replace(settings.CONFIGURATION, agent=BUILT_IN_AGENTS["demo"])
    monkeypatch.setattr(settings, "CONFIGURATION", configuration)
