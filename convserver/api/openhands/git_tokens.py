"""The tokens of a user's git providers, on either wire: stored once their provider accepts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from convserver.api.openhands.bounds import PROVIDERS_MAX, members_at_most
from convserver.api.openhands.errors import Refused
from convserver.api.openhands.text import storable
from convserver.api.openhands.tool_servers import EnteredMcpConfig
from convserver.event_loop import in_loop
from sessions_app.git_providers.base import (
    GitAuthenticationError,
    GitProviderError,
    InvalidName,
    ProviderToken,
    ProviderType,
    outcomes,
)
from sessions_app.git_providers.client import GitProviders
from sessions_app.settings import user_settings

Short = Annotated[str, Field(max_length=8000), AfterValidator(storable)]


class TokenWanted(Exception):
    """A stored token is not sent to another host than the one that it was entered for."""


class NewToken(BaseModel):
    """A provider's token and host; without a token the stored one stays, at its host.

    An absent host stays too, and so does one that is blank beside a blank token; null means the public
    host. A new host needs the token again: a stored token is sent only to the host that it was entered for.
    """

    token: Short | None = None
    host: Short | None = None

    @property
    def text(self) -> str:
        """The token; blank if the stored one stays."""
        return (self.token or "").strip()

    def completed(self, stored: ProviderToken | None) -> ProviderToken | None:
        """Return the new token with its host; None if nothing changes. Raise TokenWanted for another host."""
        host = self._host(stored)
        if self.text:
            return ProviderToken(token=self.text, host=host)
        # A client that can change the host must not learn the token.
        if stored is not None and host != stored.host:
            raise TokenWanted
        return None

    def _host(self, stored: ProviderToken | None) -> str | None:
        host = (self.host or "").strip()
        says_nothing = not host and not self.text and self.host is not None
        is_kept = "host" not in self.model_fields_set or says_nothing
        return stored.host if stored and is_kept else host or None


class NewProviders(BaseModel):
    """Tokens by provider, and tool servers; providers that are not named keep what they have."""

    provider_tokens: Annotated[dict[ProviderType, NewToken], members_at_most(PROVIDERS_MAX)] = {}
    mcp_config: EnteredMcpConfig | None = None


def store_tokens(user_id: int, new: NewProviders, *, error_member: str) -> None:
    """Check each token with its provider, then store all of them or none.

    Raise Refused with the fault of each wrong one under `error_member`.
    """
    stored = user_settings.provider_tokens(user_id)
    # Before anything is stored, and outside of a transaction: a provider may take seconds to answer.
    verified = _verified(dict(_changed(new.provider_tokens, stored, error_member)), error_member)
    mcp_config = new.mcp_config.model_dump_json() if new.mcp_config else None
    user_settings.change_provider_tokens(user_id, verified, mcp_config=mcp_config)


def _changed(
    given: Mapping[ProviderType, NewToken],
    stored: Mapping[ProviderType, ProviderToken],
    error_member: str,
) -> Iterator[tuple[ProviderType, ProviderToken]]:
    for provider, token in given.items():
        try:
            completed = token.completed(stored.get(provider))
        except TokenWanted as error:
            words = f"The host of {provider} has changed. Enter the token for the new host."
            raise Refused(400, {error_member: words}) from error
        if completed is not None:
            yield provider, completed


def _verified(
    tokens: Mapping[ProviderType, ProviderToken], error_member: str
) -> dict[ProviderType, ProviderToken]:
    """Return the tokens with their holders. Raise Refused with the fault of each wrong one."""
    # All at once: the user waits for the slowest provider, not for their sum.
    asked = in_loop(lambda: outcomes(GitProviders({name: token}).user() for name, token in tokens.items()))
    answers = dict(zip(tokens, asked, strict=True))
    errors = {
        provider: answer for provider, answer in answers.items() if isinstance(answer, GitProviderError)
    }
    if errors:
        words = " ".join(_words(provider, error) for provider, error in errors.items())
        raise Refused(_status(list(errors.values())), {error_member: words})
    return {
        provider: replace(tokens[provider], user_id=answer["id"])
        for provider, answer in answers.items()
        if not isinstance(answer, GitProviderError)
    }


def _words(provider: ProviderType, error: GitProviderError) -> str:
    if isinstance(error, GitAuthenticationError):
        return f"Invalid token. Please make sure it is a valid {provider} token."
    return str(error)


def _status(errors: Sequence[GitProviderError]) -> int:
    """Return the answer: first for a wrong token, then a wrong host, then a provider that does not answer."""
    if any(isinstance(error, GitAuthenticationError) for error in errors):
        return 401
    return 400 if any(isinstance(error, InvalidName) for error in errors) else 502
