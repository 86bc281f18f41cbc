"""What the server knows of tools: the names that clients read, and facts in results about a repository."""

from __future__ import annotations

from collections.abc import Sequence

from conversations.dialects.author import COMMAND_TOOL, command_of
from conversations.dialects.file_tool import FILE_TOOL
from conversations.events import Appended, ConversationRef
from conversations.redaction import secrets
from conversations.store import changes
from conversations.tool_facts import PULL_REQUEST_TOOLS, branch_after, pull_request_in
from sessions_app.agents.base import ToolCall
from sessions_app.agents.turn_usage import AppendHook
from sessions_app.settings.client_tools import Known

PLAIN_COMMAND_TOOL = "bash"
"""The name of a COMMAND_TOOL that is shown as an ordinary tool."""
PLAIN_FILE_TOOL = "str_replace_editor"
"""The name of a FILE_TOOL that is shown as an ordinary tool."""


def shown_name(name: str, known: Known) -> str:
    """Return the name under which clients are shown a tool."""
    # A client without a tool of this kind cannot read its calls.
    if name == COMMAND_TOOL and not known.has_terminal:
        return PLAIN_COMMAND_TOOL
    return PLAIN_FILE_TOOL if name == FILE_TOOL and not known.has_editor else name


def learning(conversation: ConversationRef, call: ToolCall, content: str) -> AppendHook | None:
    """Return a hook that stores the branch and pull request of a successful result; None without them."""
    is_command = call.name in (COMMAND_TOOL, PLAIN_COMMAND_TOOL)
    branch = branch_after(command_of(call.arguments), content) if is_command else None
    number = pull_request_in(content) if call.name in PULL_REQUEST_TOOLS else None
    if branch is None and number is None:
        return None

    def learn(appended: Sequence[Appended]) -> None:
        if branch is not None:
            # The column is shown as it is, so a name that contains a secret is not stored.
            masks = secrets.masks_of(conversation.owner_id, conversation.pk)
            if masks.hide(branch) == branch:
                changes.note_branch(conversation, branch)
        if number is not None:
            changes.note_pull_request(conversation, number)

    return learn
