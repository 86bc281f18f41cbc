"""A skill, once a microagent: knowledge for the model, of a repository or of a V1 start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from conversations.dialects import columns


class SkillKind(StrEnum):
    """When the model reads a skill, by the wire's names."""

    REPOSITORY = "repo"
    """Always."""
    KNOWLEDGE = "knowledge"
    """Once the user has written one of its keywords."""
    ON_DEMAND = "agentskills"
    """When the model wants to: it sees the description, and opens the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillInput:
    """What a user is to give for a skill."""

    name: str
    description: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """A skill of a start, or of a repository."""

    name: str
    content: str
    kind: SkillKind = SkillKind.REPOSITORY
    keywords: tuple[str, ...] = ()
    """What the user writes to call it; an ON_DEMAND skill can have some, too."""
    description: str = ""
    path: str = ""
    """The file in the workspace; empty for a skill of the start."""
    globs: tuple[str, ...] = ()
    """The files that it is about."""
    inputs: tuple[SkillInput, ...] = ()
    servers: tuple[str, ...] = ()
    """The names of the tool servers that it declares, which are not started."""
    is_hidden: bool = False
    """Whether the model sees it only by a keyword."""

    def keyword_in(self, text: str) -> str | None:
        """Return the first keyword in a text in lower case."""
        return next((word for word in self.keywords if _mentions(text, word)), None)

    @property
    def is_always(self) -> bool:
        """Whether the model reads it in each request."""
        return self.kind is SkillKind.REPOSITORY

    @property
    def is_on_demand(self) -> bool:
        """Whether its file is a `SKILL.md`."""
        return self.kind is SkillKind.ON_DEMAND

    @property
    def summary(self) -> str:
        """Return the description or, without one, the first line of the text that is no heading."""
        description_most = 1024  # of the standard of such files
        lines = (line.strip() for line in self.content.splitlines())
        first = next((line for line in lines if line and not line.startswith("#")), "")
        return " ".join((self.description or first).split())[:description_most]


def of_start(context: Mapping[str, object]) -> list[Skill]:
    """Return the usable skills of a V1 agent's context: those without triggers by files."""
    listed = context.get("skills")
    found = (_of_start(columns.fields(each)) for each in (listed if isinstance(listed, list) else []))
    return [skill for skill in found if skill is not None]


def usable(found: Iterable[Skill], context: Mapping[str, object]) -> list[Skill]:
    """Return the skills of a repository and of a start that the start wants.

    Of two with one name, the repository's counts, as in the reference.
    """
    of_repository = [] if context.get("load_project_skills") is False else list(found)
    named = {each.name for each in of_repository}
    both = [*of_repository, *(each for each in of_start(context) if each.name not in named)]
    disabled = context.get("disabled_skills")
    return [each for each in both if not isinstance(disabled, list) or each.name not in disabled]


def _of_start(given: Mapping[str, object]) -> Skill | None:
    content = columns.first_text(given.get("content"))
    trigger = columns.fields(given.get("trigger"))
    if not content.strip() or trigger.get("type") not in (None, "keyword", "task"):
        return None
    words = trigger.get("keywords", trigger.get("triggers"))
    keywords = tuple(word for word in (words if isinstance(words, list) else []) if isinstance(word, str))
    return Skill(
        name=columns.first_text(given.get("name")) or "?",
        content=content,
        kind=SkillKind.KNOWLEDGE if trigger else SkillKind.REPOSITORY,
        keywords=keywords,
    )


def _mentions(text: str, keyword: str) -> bool:
    """Return whether a text in lower case has a keyword as a word."""
    # `github` does not mention `git`, and `my_git` does: names have underscores.
    wanted = keyword.strip().lower()
    # The first test is quick: thousands of patterns would keep a processor busy for a minute.
    return (
        bool(wanted)
        and wanted in text
        and re.search(rf"(?<![^\W_]){re.escape(wanted)}(?![^\W_])", text) is not None
    )
