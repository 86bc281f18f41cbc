"""The tools that a V1 client knows: its library refuses a call of a kind for which it has no tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conversations.dialects import columns
from conversations.events import ConversationRef
from sessions_app.models import AgentSetup

MEMBER = "client_tools"
"""Where a start names the tools that its client itself carries out, since 1.28; without any it is empty."""
NO_ARGUMENTS: Mapping[str, object] = {"type": "object", "properties": {}}
# The tool that runs commands has had each of these names in some release, in other cases, too.
_TERMINALS = frozenset({"terminal", "terminaltool", "execute_bash", "bashtool", "bash"})
_EDITORS = frozenset({"file_editor", "fileeditortool", "str_replace_editor", "strreplaceeditortool"})
_SEARCHES = frozenset({"glob", "globtool", "grep", "greptool"})
_NAMEABLE = frozenset({"think", "finish"})


class ClientTool(NamedTuple):
    """A tool that a client has declared."""

    name: str
    description: str
    schema: Mapping[str, object]
    """A JSON schema of the arguments."""
    is_destructive: bool
    """Whether the client says that it destroys something."""


class Known(NamedTuple):
    """What a client can read calls of."""

    has_terminal: bool = True
    has_editor: bool = True
    """Whether it reads calls of the tool that shows and edits files."""
    schemas: Mapping[str, Mapping[str, object]] = {}
    """Those of the arguments of its own tools, by name."""


def known_to(conversation: ConversationRef) -> Known:
    """Return what the client that has started a V1 conversation can read."""
    rows = AgentSetup.objects.filter(pk=conversation.pk)
    agent, facts = rows.values_list("shown_agent", "facts").first() or (None, None)
    hands = _hands_in(agent)
    schemas = {tool.name: tool.schema for tool in _declared(facts)}
    return Known(hands.has_terminal, hands.has_editor, schemas)


class WorkspaceTools(NamedTuple):
    """The tools on a conversation's workspace that its client wants and can read calls of."""

    has_terminal: bool = True
    has_editor: bool = True
    has_search: bool = True


def hands_of(conversation: ConversationRef) -> WorkspaceTools:
    """Return which tools on the workspace the agent of a V1 start names; all for other conversations."""
    rows = AgentSetup.objects.filter(pk=conversation.pk)
    return _hands_in(rows.values_list("shown_agent", flat=True).first())


def _hands_in(agent: object) -> WorkspaceTools:
    # Web frontends set up no agent and show terminals and files. A library reads a call of one only if it has
    # the package for it, which is sure if its agent has the tool (spec V1 §4.6).
    if not isinstance(agent, dict):
        return WorkspaceTools()
    names = {name.lower() for name in _tool_names(agent)}
    return WorkspaceTools(*(not names.isdisjoint(known) for known in (_TERMINALS, _EDITORS, _SEARCHES)))


def _tool_names(agent: Mapping[str, object]) -> Iterator[str]:
    tools = agent.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(name := columns.fields(tool).get("name"), str):
            yield name


def may_have_any(conversation: ConversationRef) -> bool:
    """Return whether the conversation was started by a release that knows client tools, and so all before."""
    return MEMBER in columns.fields(_facts(conversation))


def named(conversation: ConversationRef) -> frozenset[str]:
    """Return which of the tools `think` and `finish` the agent of the start names."""
    rows = AgentSetup.objects.filter(pk=conversation.pk)
    agent = columns.fields(rows.values_list("shown_agent", flat=True).first())
    # Releases since 1.11 name the classes of the two here, and not among the tools.
    classes = agent.get("include_default_tools")
    listed = [*_tool_names(agent), *(classes if isinstance(classes, list) else [])]
    known = {name.lower().removesuffix("tool") for name in listed if isinstance(name, str)}
    return _NAMEABLE & known


def declared(conversation: ConversationRef) -> list[ClientTool]:
    """Return the tools that the client has declared."""
    return _declared(_facts(conversation))


def _declared(facts: object) -> list[ClientTool]:
    listed = columns.fields(facts).get(MEMBER)
    tools = [_tool(columns.fields(each)) for each in (listed if isinstance(listed, list) else [])]
    return [tool for tool in tools if tool.name]


def _tool(given: Mapping[str, object]) -> ClientTool:
    return ClientTool(
        name=columns.first_text(given.get("name")),
        description=columns.first_text(given.get("description")),
        schema=columns.fields(given.get("parameters")) or NO_ARGUMENTS,
        is_destructive=columns.fields(given.get("annotations")).get("destructiveHint") is True,
    )


def _facts(conversation: ConversationRef) -> object:
    return AgentSetup.objects.filter(pk=conversation.pk).values_list("facts", flat=True).first()
