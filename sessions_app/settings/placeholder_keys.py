"""Keys of models that are no secrets: local servers want any text, and people type a common word."""

from __future__ import annotations

# A shorter key or secret would be found in words by chance; no provider has one.
MASKED_MIN_CHARS = 8
MASKED_FROM = f"A key of at least {MASKED_MIN_CHARS} characters is masked in conversations."
"""The hint of forms beside a key."""
NOT_MASKED = (
    f"The key has fewer than {MASKED_MIN_CHARS} characters, so conversations do not mask it. A longer one is "
    "masked."
)
_PLACEHOLDERS = frozenset(
    {
        *("empty", "none", "null", "dummy", "fake", "placeholder", "unused", "anything", "whatever", "test"),
        *("ollama", "lm-studio", "lmstudio", "lm_studio", "llama.cpp", "llamacpp", "vllm"),
        *("local", "localai"),
        *("no-key", "nokey", "no_key", "no-key-needed", "no-key-required", "sk-no-key-required"),
        *("sk-no-key-needed", "not-needed", "not_needed", "not-required", "not-used", "sk-dummy", "sk-fake"),
        *("key", "api-key", "api_key", "apikey", "your-api-key", "your_api_key", "sk-placeholder"),
    }
)


def is_placeholder(key: str) -> bool:
    """Return whether a key is one of the words that are typed where a server wants no key."""
    shown = key.strip().lower()
    # One character repeated, such as `x` or `0000`, is also typed only to fill a field.
    return shown in _PLACEHOLDERS or (shown != "" and len(set(shown)) == 1)


def is_masked(key: str) -> bool:
    """Return whether a model's key is masked in texts."""
    return len(key.strip()) >= MASKED_MIN_CHARS and not is_placeholder(key)


def note_on(key: str) -> str:
    """Return the note for a person who enters this key; empty without one."""
    return "" if not key.strip() or is_masked(key) or is_placeholder(key) else NOT_MASKED
