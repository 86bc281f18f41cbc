"""What a model is told of the skills that a V1 start brings."""

from __future__ import annotations

from typing import Any

from sessions_app import front_matter
from sessions_app.agents.llm.guidance import skills
from sessions_app.repository_skills import skill as skill_files


def told(*listed: Any, said: str = "Hello.") -> list[str]:
    return list(skills.told(skill_files.of_start({"skills": list(listed)}), [said]))


def skill(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "content": f"About {name}.", "trigger": None, **members}


def keyword(*words: str) -> dict[str, Any]:
    return {"type": "keyword", "keywords": list(words)}


def test_a_skill_without_a_trigger_is_always_told() -> None:
    [text] = told(skill("rules"))
    assert text.endswith("About rules.")


def test_a_skill_with_keywords_is_told_once_the_user_has_said_one_as_a_word() -> None:
    git = skill("git", trigger=keyword("git", "pull request"))
    assert told(git, said="Look at github and digits.") == []
    assert "mentions `git`" in told(git, said="Use GIT, please.")[0]
    assert "mentions `pull request`" in told(git, said="Open a pull request!")[0]


def test_a_task_is_told_by_its_triggers_and_a_rule_for_paths_is_not() -> None:
    task = skill("fix", trigger={"type": "task", "triggers": ["/fix"]})
    rule = skill("rule", trigger={"type": "path", "paths": ["*.py"]})
    assert len(told(task, rule, said="/fix it")) == 1


def test_skills_that_are_too_long_together_are_only_named() -> None:
    long = skill("long", content="x" * skills.SKILLS_MAX_CHARS)
    first, last = told(long, skill("more"))
    assert "xxx" in first
    assert last == skills.LEFT_OUT.format(names="`more`")


def test_what_is_no_skill_is_passed_over() -> None:
    assert told("text", None, {}, {"name": "a"}, skill("empty", content=" ")) == []
    assert skill_files.of_start({"skills": "none"}) == []


def test_an_alias_in_front_matter_is_refused_as_it_stands_for_many_copies() -> None:
    copies = ", ".join(["*a"] * 2_000)
    found = front_matter.read(f"---\ninputs: [&a {{name: {'x' * 8_000}}}, {copies}]\n---\nText")
    assert (found.content, found.mappings("inputs")) == ("Text", [])
    assert found.problem == "its front matter is no YAML"
