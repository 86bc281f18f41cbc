"""The skills (once microagents) of a V1 start: knowledge for the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conversations.dialects import columns

SKILLS_MAX_CHARS = 60_000  # of all in a request, which has only the names of the others
ALWAYS = "What the user's skill `{name}` says:\n\n{content}"
MENTIONED = (
    "The user mentions `{keyword}`. What the skill `{name}` says about it, which may not be what is meant:"
    "\n\n{content}"
)
LEFT_OUT = "There are further skills of the user, which are too long to be shown: {names}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """A skill of a start."""

    name: str
    content: str
    keywords: tuple[str, ...] | None = None
    """The skill counts once the user mentions one of these; None if it always counts."""


def skills_in(context: Mapping[str, object]) -> list[Skill]:
    """Return the usable skills of a V1 agent's context: those without triggers by files."""
    listed = context.get("skills")
    found = (_skill(columns.fields(each)) for each in (listed if isinstance(listed, list) else []))
    return [skill for skill in found if skill is not None]


def told(skills: Sequence[Skill], said: Sequence[str]) -> Iterator[str]:
    """Yield the texts about the skills for a model whose user has said this."""
    room = SKILLS_MAX_CHARS
    left_out: list[str] = []
    text = "\n".join(said).lower() if any(skill.keywords for skill in skills) else ""
    for skill in skills:
        keyword = next((word for word in skill.keywords or () if _mentions(text, word)), None)
        if skill.keywords is not None and keyword is None:
            continue
        room -= len(skill.content)
        if room < 0:
            left_out.append(f"`{skill.name}`")
            room += len(skill.content)
            continue
        form = ALWAYS if keyword is None else MENTIONED
        yield form.format(name=skill.name, keyword=keyword, content=skill.content)
    if left_out:
        yield LEFT_OUT.format(names=", ".join(left_out))


def _skill(given: Mapping[str, object]) -> Skill | None:
    content = columns.first_text(given.get("content"))
    trigger = columns.fields(given.get("trigger"))
    if not content.strip() or trigger.get("type") not in (None, "keyword", "task"):
        return None
    words = trigger.get("keywords", trigger.get("triggers"))
    keywords = tuple(word for word in (words if isinstance(words, list) else []) if isinstance(word, str))
    name = columns.first_text(given.get("name")) or "?"
    return Skill(name=name, content=content, keywords=keywords if trigger else None)


def _mentions(text: str, keyword: str) -> bool:
    """Return whether a text in lower case has a keyword as a word."""
    # `github` does not mention `git`, and `my_git` does: names have underscores.
    wanted = keyword.strip().lower()
    return bool(wanted) and re.search(rf"(?<![^\W_]){re.escape(wanted)}(?![^\W_])", text) is not None
