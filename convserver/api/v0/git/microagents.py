"""The conversations in which microagents are written (spec V0 §1.6)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.cursors import ListCursor
from conversations.models import ConversationQuerySet
from convserver.api.openhands.metadata import ConversationTrigger, whole_numbers
from convserver.api.openhands.view import query_of
from convserver.api.scopes import WRITES
from convserver.api.v0 import documented
from convserver.api.v0.bodies import MicroagentQuery
from convserver.api.v0.conversations import listed, shown_page
from convserver.api.v0.pages import page_of, rows_from
from convserver.api.v0.view import V0ViewSet
from convserver.event_loop import in_loop
from convserver.pagination import Page
from convserver.serving.admission import Lane, in_lane
from sessions_app.git_providers.base import ProviderToken, ProviderType
from sessions_app.git_providers.client import GitProviders
from sessions_app.settings import user_settings

logger = logging.getLogger(__name__)

CANDIDATES_MAX = 1000
"""A page reads at most this many conversations, also if most pull requests are closed."""
PROVIDERS_S = 10.0
"""A page waits this long for all providers; pull requests without an answer by then count as open."""


class Candidate(NamedTuple):
    """A conversation that the list may contain."""

    created_at: datetime
    pk: int
    provider: str | None
    pr_number: list[int]


class MicroagentConversationViewSet(V0ViewSet):
    """The list of the microagent management."""

    needs = WRITES

    @in_lane(Lane.ABROAD)
    @extend_schema(**documented.microagent_list)
    def list(self, request: Request) -> Response:
        """Return one page: of one repository, without those whose pull request is closed."""
        query = query_of(request, MicroagentQuery)
        rows = listed(request).matching(
            repository=query.selected_repository, trigger=ConversationTrigger.MICROAGENT_MANAGEMENT
        )
        tokens = user_settings.provider_tokens(self.user_id)
        # Without a token no provider can be asked, and what is not known counts as open (spec V0 §1.6).
        page = _open_page(rows, query, tokens) if tokens else page_of(rows, query)
        return Response(shown_page(request, page))


def _open_page(
    rows: ConversationQuerySet, query: MicroagentQuery, tokens: Mapping[ProviderType, ProviderToken]
) -> Page:
    """Return one page of those whose pull request is open, or not known to be closed."""
    page: list[Candidate] = []
    last: Candidate | None = None
    deadline = time.monotonic() + PROVIDERS_S
    # Clients look at one page only, so one that is filtered is filled from the rows behind it (spec V0 §1.2).
    for batch in _batches(rows, query):
        left_s = deadline - time.monotonic()
        closed = in_loop(_closed, batch, query.selected_repository, tokens, within_s=left_s)
        for candidate in batch:
            if candidate.pk not in closed:
                if len(page) == query.limit:
                    return _ending_with(page, page[-1])
                page.append(candidate)
            last = candidate
    is_cut_off = last is not None and rows.older_than(last.created_at, last.pk).exists()
    return _ending_with(page, last if is_cut_off else None)


def _ending_with(page: Sequence[Candidate], last: Candidate | None) -> Page:
    cursor = ListCursor(last.created_at, last.pk).encode() if last else None
    return Page([candidate.pk for candidate in page], cursor)


def _batches(rows: ConversationQuerySet, query: MicroagentQuery) -> Iterator[list[Candidate]]:
    """Yield the rows after the page id, one more than a page at a time, at most CANDIDATES_MAX."""
    following = rows_from(rows, query.page_id)
    # One more than a page tells whether there is another one.
    size = query.limit + 1
    for _ in range(0, CANDIDATES_MAX, size):
        columns = following.values_list("created_at", "pk", "provider", "pr_number")
        batch = [
            Candidate(created_at, pk, provider, whole_numbers(pr_number))
            for created_at, pk, provider, pr_number in columns[:size]
        ]
        yield batch
        if len(batch) < size:
            return
        following = rows.older_than(batch[-1].created_at, batch[-1].pk)


async def _closed(
    candidates: Sequence[Candidate],
    repository: str,
    tokens: Mapping[ProviderType, ProviderToken],
    *,
    within_s: float,
) -> set[int]:
    """Return those whose newest pull request is known to be closed; all are queried at once."""
    if within_s <= 0:
        return set()
    providers = GitProviders(tokens)
    asked = {
        candidate.pk: asyncio.ensure_future(
            providers.is_open(repository, ProviderType(candidate.provider), candidate.pr_number[-1])
        )
        for candidate in candidates
        if candidate.pr_number and candidate.provider in set(ProviderType)
    }
    try:
        async with asyncio.timeout(within_s):
            await asyncio.gather(*asked.values())
    except TimeoutError:  # gather has cancelled the unanswered ones
        logger.warning("Git providers did not say in time which pull requests are open")
    return {pk for pk, answer in asked.items() if not answer.cancelled() and not answer.result()}
