"""What a client sends to run a command, by REST and on the socket."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from sessions_app.shell_commands.kept import NewCommand


def _runnable(text: str) -> str:
    """Return the text. Raise ValueError if it cannot be an argument of a program."""
    bytes_most = 100_000
    if "\0" in text:
        raise ValueError("the text holds a NUL")
    # Linux takes no argument of 128 KiB; a lone half of a character cannot be encoded.
    if len(text.encode("utf-8", "replace")) > bytes_most:
        raise ValueError(f"the text has more than {bytes_most:,} bytes: store it as a file, and run that")
    if not text.isascii() and text != text.encode("utf-8", "replace").decode():
        raise ValueError("the text holds half of a surrogate pair")
    return text


class CommandRequest(BaseModel):
    """A command for bash, where it runs, and for how many seconds at most."""

    command: Annotated[str, AfterValidator(_runnable)]
    cwd: Annotated[str, AfterValidator(_runnable)] | None = None
    timeout: int = Field(default=300, ge=0, le=24 * 3600)

    def new(self) -> NewCommand:
        """Return what is to be started."""
        return NewCommand(self.command, self.cwd, self.timeout)
