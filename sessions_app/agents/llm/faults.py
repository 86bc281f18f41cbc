"""The failures of requests to models and of tool servers."""

from __future__ import annotations

from collections.abc import Iterator

from sessions_app.agents.base import AgentFailure

BAD_REQUEST = "LLMBadRequestError"
"""The code for V1 clients: the server has rejected the request."""
RATE_LIMIT = "LLMRateLimitError"
"""The code for V1 clients: too many requests, or no credits."""


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
        """The pause that the server wants, in seconds."""
        self.tries_max = tries_max
        """The most further tries; None for the turn's own limit."""


class ToolsRefused(ModelFault):
    """The model cannot use tools: it may answer the same conversation without them."""


class ToolFault(Exception):
    """A tool server is unusable, or a call has no result; the text has no key."""

    last_lines = ""
    """The end of a program's standard error, without its secrets."""

    def told(self, sentence: str) -> str:
        """Return a sentence with the program's last lines, if there are any."""
        if not self.last_lines:
            return sentence
        return f"{sentence}\n\nThe last lines of its standard error:\n\n{self.last_lines}"


class CallLate(ToolFault):
    """A call had no result in time; the server may answer the next one."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those behind it, also the members of groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from causes(each)
    elif error is not None:
        yield error
        yield from causes(error.__cause__ or error.__context__)
