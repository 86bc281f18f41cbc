"""The format of the server's log, for its own lines and those of libraries: text or JSON."""

from __future__ import annotations

import logging
import logging.config
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from io import StringIO
from types import TracebackType
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from conversations.server_log import ACTS
from convserver.configuration import LogFormat, LogLevel
from convserver.serving import request_log

OWN_LOGGERS = ("convserver", "conversations", "sessions_app")


class StandardError(logging.StreamHandler[TextIO]):
    """Writes to the standard error of the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr  # a program may have replaced it since the start
        super().emit(record)


def settings(format: LogFormat, level: LogLevel) -> dict[str, Any]:
    """Return the value of Django's LOGGING, which `configure` reads."""
    number = logging.getLevelNamesMapping()[level.upper()]
    # Debug lines of libraries contain frames, headers and queries.
    of_libraries = max(number, logging.INFO)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {
            "told_once": {"()": "convserver.serving.request_log.ToldOnce"},
            "seldom": {"()": "conversations.outages.Seldom"},
        },
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*_FACTS, structlog.stdlib.ExtraAdder(allow=())],
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *_written_as(format),
                ],
            }
        },
        "handlers": {"console": {"()": StandardError, "formatter": "line"}},
        "root": {"handlers": ["console"], "level": of_libraries},
        "loggers": {
            **{name: {"level": number} for name in OWN_LOGGERS},
            # Django gives these two handlers of their own, which would write a second line or send mail.
            "django": {"handlers": [], "level": of_libraries, "propagate": True},
            "django.server": {"handlers": [], "level": of_libraries, "propagate": True},
            "django.request": {"filters": ["told_once"]},
            "psycopg": {"filters": ["seldom"]},
            "psycopg.pool": {"filters": ["seldom"]},
            # They log every address that they request, and these name private repositories and models.
            "httpx": {"level": max(number, logging.WARNING)},
            "httpx2": {"level": max(number, logging.WARNING)},
            "google_genai": {"level": max(number, logging.WARNING)},
            "procrastinate": {"level": max(number, logging.WARNING)},
            # It logs what strangers' servers write, at any level.
            "mcp": {"level": logging.CRITICAL},
            # Addresses may contain keys (V1 sockets), and the line about an accepted socket has the whole
            # address.
            "uvicorn.error": {"level": max(number, logging.WARNING)},
            # Without a level, these two add handlers of their own, and every line is written twice.
            "engineio.server": {"level": logging.ERROR},
            "socketio.server": {"level": logging.ERROR},
        },
    }


def configure(logging_settings: Mapping[str, Any]) -> None:
    """Configure both structlog and Python's logging with these settings: Django's LOGGING_CONFIG."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_FACTS,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(dict(logging_settings))
    if logging_settings["formatters"]["line"]["processors"][-1] is _as_json:
        # Collectors of logs refuse a plain line among the objects.
        _log_what_python_prints()


def json_line(sentence: str, *, level: str) -> str:
    """Return a line of the log in JSON for what is said before logging is configured."""
    moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    facts = {"event": sentence, "logger": "convserver", "level": level, "timestamp": moment}
    return orjson.dumps(facts).decode()


def _log_what_python_prints() -> None:
    """Log warnings and uncaught exceptions, which Python would print as plain lines."""
    logging.captureWarnings(True)
    logger = logging.getLogger("convserver")

    def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            logger.critical("An exception was not caught", exc_info=(kind, error, trace))

    def log_of_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None:
            log_uncaught(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)

    def log_unraisable(found: sys.UnraisableHookArgs) -> None:
        if found.exc_value is not None:
            log_uncaught(found.exc_type, found.exc_value, found.exc_traceback)

    sys.excepthook = log_uncaught
    threading.excepthook = log_of_thread
    sys.unraisablehook = log_unraisable


def _with_request(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Add the id of this thread's request, and to a line about an action where it was asked from."""
    if (request_id := request_log.current_id()) is not None:
        event.setdefault("request", request_id)
    if getattr(logger, "name", None) == ACTS and (address := request_log.current_address()) is not None:
        event.setdefault("address", address)
    return event


# The parts of every line; one list, so that lines of libraries have the same as those of the project.
_FACTS: list[Processor] = [
    _with_request,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.PositionalArgumentsFormatter(),
]


def _written_as(format: LogFormat) -> list[Processor]:
    if format is LogFormat.JSON:
        return [structlog.processors.format_exc_info, _as_json]
    console = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(),
        pad_event_to=0,
        pad_level=False,
        # The other formatters would show the values of variables, and secrets among them.
        exception_formatter=_traceback,
    )
    return [_escaped, console]


def _escaped(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Escape control characters and line ends in the sentence and in every fact."""
    # A client's text must not begin a line of its own, nor give commands to an operator's terminal.
    return {name: _visible(value) if isinstance(value, str) else value for name, value in event.items()}


def _traceback(output: TextIO, exc_info: ExcInfo) -> None:
    """Write a traceback on lines of its own; its last line may quote text from outside."""
    plain = StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    output.write("\n".join(_visible(line) for line in plain.getvalue().split("\n")))


def _visible(text: str) -> str:
    """Return the text with every unprintable character escaped: controls, bidi marks, line ends."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _as_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    return orjson.dumps({"event": event.pop("event", ""), **event}, default=str).decode()
