"""The tool `create_pull_request`: it pushes a branch of the repository, and opens a request for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from conversations.payloads import halves
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.offers import NoServer, Tool
from sessions_app.repositories import pushing
from sessions_app.repositories.pushing import BranchWanted

NAME = "create_pull_request"
OPENED = "The pull request #{number} is open: {url}"


def _text(meaning: str) -> dict[str, object]:
    return {"type": "string", "description": meaning}


TOOL = Tool(
    name=NAME,
    description=(
        "Push a branch of the repository to its provider, and open a pull request (GitLab: merge request) "
        "for it. Commit first: only commits are pushed. If the branch has an open one already, the branch is "
        "pushed, and that one is returned. The terminal has no network, so this is the only way to push."
    ),
    schema={
        "type": "object",
        "properties": {
            "title": _text("The title."),
            "body": _text("What was changed, and why, as Markdown."),
            "branch": _text("The branch to push. Without it, the one that is checked out."),
            "base": _text("The branch to merge into. Without it, the main branch."),
            "draft": {"type": "boolean", "description": "Whether it is a draft. Default: false."},
        },
        "required": ["title"],
    },
    server=NoServer.WORKSPACE,
    own_name=NAME,
    risk="HIGH",
)


def asks_first() -> bool:
    """Return whether each call needs an approval, whatever the policy: unless the operator has trusted it."""
    return (NAME,) not in settings.CONFIGURATION.commands_never_asked


async def run(conversation: ConversationRef, arguments: Mapping[str, Any]) -> Outcome:
    """Run a call."""
    # A call that was approved comes from the log, which keeps halves of characters.
    given = {key: halves.whole(each) for key, each in arguments.items() if isinstance(each, str)}
    wanted = BranchWanted(
        title=given["title"],
        body=given.get("body", ""),
        branch=given.get("branch", "").removeprefix("refs/heads/"),
        base=given.get("base", ""),
        is_draft=arguments.get("draft") is True,
    )
    try:
        opened = await pushing.open_pull_request(conversation, wanted)
    except ConversationError as error:
        return Outcome(str(error), is_error=True)
    return Outcome(OPENED.format(number=opened.number, url=opened.url))
