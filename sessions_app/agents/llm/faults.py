"""The failure of one request to a model."""

from __future__ import annotations

from sessions_app.agents.base import AgentFailure

BAD_REQUEST = "LLMBadRequestError"
"""The code of a failure that V1 clients know: the server has rejected the request as it is."""
RATE_LIMIT = "LLMRateLimitError"
"""The code of a failure that V1 clients know: too many requests, or no credits."""


class ModelFault(AgentFailure):
    """A request to a model failed; the text is for the user."""

    def __init__(
        self,
        text: str,
        *,
        code: str = "LLMError",
        is_passing: bool = False,
        is_too_long: bool = False,
        wait_s: float | None = None,
        tries_max: int | None = None,
    ) -> None:
        super().__init__(text, code=code)
        self.is_passing = is_passing
        """Whether the same request may succeed later."""
        self.is_too_long = is_too_long
        """Whether a shorter request may succeed."""
        self.wait_s = wait_s
        """How long the server asks to wait, in seconds."""
        self.tries_max = tries_max
        """How often to try again at most; None for as often as there is time."""


class ToolsRefused(ModelFault):
    """The model cannot use tools: the same conversation may be answered without them."""
