"""Hooks in this process: objects of other packages that are notified of conversations.

A hook has any of the methods `created(conversation, information)`, `appended(conversation, events)`,
`status(conversation, information)` and `deleted(conversation, information)`, plain or `async`. If one
raises, the call is repeated later, and nothing newer of the conversation is delivered before that.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from django.conf import settings
from django.db import connections
from django.utils.module_loading import import_string

from sessions_app.encryption import seal
from sessions_app.models import Endpoint, EndpointKind
from sessions_app.models.webhooks import NAME_MAX_LENGTH
from sessions_app.webhooks.deliveries import PER_ENDPOINT, begin
from sessions_app.webhooks.notifications import DeliveryFailed, Notification, NotificationKind

logger = logging.getLogger(__name__)

GROUP = "convserver.hooks"
"""The group of entry points with which packages name their hooks."""


def found_hooks() -> dict[str, Any]:
    """Return the hooks of this process by name; one that cannot be created is logged and left out."""
    makers: dict[str, Callable[[], Any]] = {}
    for point in entry_points(group=GROUP):
        makers[f"{GROUP}:{point.name}"] = point.load
    for path in settings.CONVERSATION_HOOKS:
        makers[path] = partial(import_string, path)
    hooks = {name: _made(name, load) for name, load in makers.items() if len(name) <= NAME_MAX_LENGTH}
    return {name: hook for name, hook in hooks.items() if hook is not None}


def _made(name: str, load: Callable[[], Any]) -> Any:
    try:
        found = load()
        hook = found() if callable(found) else found
    except Exception:  # of any package: the other hooks must work
        logger.exception("The hook %s could not be made.", name)
        return None
    if not any(callable(getattr(hook, kind, None)) for kind in NotificationKind):
        logger.error("The hook %s has none of the methods %s.", name, ", ".join(NotificationKind))
        return None
    return hook


def install(hooks: Mapping[str, Any]) -> None:
    """Create an endpoint for every hook that has none; a known hook continues where it stopped."""
    known = set(Endpoint.objects.filter(kind=EndpointKind.HOOK).values_list("name", flat=True))
    batch_events = 100
    for name in sorted(hooks.keys() - known):
        begin(
            Endpoint(
                kind=EndpointKind.HOOK,
                name=name,
                sealed=seal("{}"),
                event_buffer_size=batch_events,
                flush_delay_s=0.0,
            )
        )


class HookTransport:
    """The transport of one hook."""

    def __init__(self, endpoint: Endpoint, hook: Any) -> None:
        self._endpoint = endpoint
        self._hook = hook
        self._threads = ThreadPoolExecutor(PER_ENDPOINT, thread_name_prefix="hook")

    async def deliver(self, notification: Notification) -> None:
        """Call the method for the notification, a plain one in a thread. Raise DeliveryFailed."""
        method = getattr(self._hook, notification.kind, None)
        if method is None:
            return
        is_of_log = notification.kind is NotificationKind.APPENDED
        details = notification.events if is_of_log else notification.information
        try:
            if inspect.iscoroutinefunction(method):
                async with asyncio.timeout(self._endpoint.timeout_s):
                    await method(notification.conversation, details)
            else:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(
                    self._threads, _called, lambda: method(notification.conversation, details)
                )
        except Exception as error:
            logger.warning("The hook %s failed", self._endpoint.name, exc_info=error)
            raise DeliveryFailed(f"It raised {type(error).__name__}; the server's log has more.") from error

    async def close(self) -> None:
        # A call that hangs must not hold up the end of the server.
        self._threads.shutdown(wait=False, cancel_futures=True)


def _called(call: Callable[[], object]) -> None:
    try:
        call()
    finally:
        # A hook may have used the database, and its thread is not Django's to clean up.
        connections.close_all()


@cache
def hooks_of_this_process() -> Mapping[str, Any]:
    return found_hooks()
