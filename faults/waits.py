"""How long a run waits for programs that it starts and ends: a slow machine is no wrong answer."""

from __future__ import annotations

START_WAIT_S = 600.0
"""A start takes seconds of computing, and minutes where 50 other programs want the processors, too."""
STOP_WAIT_S = 120.0
