"""The skill in the text of a file."""

from __future__ import annotations

import re

from sessions_app import front_matter
from sessions_app.repository_skills.skill import Skill, SkillInput, SkillKind
from sessions_app.workspaces.beneath import shown

# The files of other programs with instructions for agents, and the names of their skills.
INSTRUCTIONS = {
    "agents.md": "agents",
    "agent.md": "agents",
    "claude.md": "claude",
    "gemini.md": "gemini",
    ".cursorrules": "cursorrules",
}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ASK = "\n\nIf the user didn't give one of these, ask for it before you begin: {inputs}."


def skill_of(path: str, name: str, text: str) -> Skill | None:
    """Return the skill of a file; None for an empty one. Raise ValueError with what is wrong.

    `name` is its path in its folder.
    """
    folder, _, file = name.rpartition("/")
    if (known := INSTRUCTIONS.get(file.lower())) is not None:
        return Skill(name=known, content=text.strip(), path=path) if text.strip() else None
    parts = front_matter.read(text)
    if parts.problem:
        raise ValueError(parts.problem)
    # The standard of `SKILL.md` is strict about names; files of OpenHands may have any.
    is_on_demand = file.lower() == "skill.md"
    called = parts.text("name") or (folder if is_on_demand else name.removesuffix(".md"))
    names_most = 64
    if is_on_demand and (called != folder or len(called) > names_most or not _NAME.fullmatch(called)):
        raise ValueError(
            f"its name must be that of its directory, {shown(folder)}, of at most {names_most} lower-case "
            "letters, digits and single hyphens"
        )
    if not parts.content and not is_on_demand:
        return None
    return _made(parts, Skill(name=called[:200], content=parts.content, path=path), is_on_demand=is_on_demand)


def _made(parts: front_matter.FrontMatter, skill: Skill, *, is_on_demand: bool) -> Skill:
    """Return a skill with all that its front matter says."""
    globs = [each.strip() for text in parts.texts("paths") for each in text.split(",") if each.strip()]
    # A skill for files is not called by words, too: the reference takes the files alone.
    keywords = [] if globs else parts.texts("triggers")
    inputs = () if globs else _inputs(parts)
    content = skill.content
    if not globs and "inputs" in parts.fields:
        keywords.append(f"/{skill.name}")
        if inputs:
            content += _ASK.format(inputs=", ".join(f"`{each.name}`" for each in inputs))
    # Without anything that calls it, a plain file is for each request.
    kind = SkillKind.KNOWLEDGE if keywords or globs else SkillKind.REPOSITORY
    words_most, word_most = 100, 200
    return Skill(
        name=skill.name,
        content=content,
        kind=SkillKind.ON_DEMAND if is_on_demand else kind,
        keywords=tuple(dict.fromkeys(each[:word_most] for each in keywords[:words_most])),
        description=parts.text("description"),
        path=skill.path,
        globs=tuple(globs[:words_most]),
        inputs=inputs,
        servers=tuple(parts.members("mcp_tools")[:words_most]),
        is_hidden=parts.has("disable-model-invocation", "disable_model_invocation"),
    )


def _inputs(parts: front_matter.FrontMatter) -> tuple[SkillInput, ...]:
    named = (each for each in parts.mappings("inputs") if each.get("name"))
    return tuple(SkillInput(name=each["name"], description=each.get("description", "")) for each in named)
