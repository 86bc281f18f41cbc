"""The admin: a door for staff. Importing it registers every page; `convserver.urls` alone does that."""

from __future__ import annotations

from django.contrib import admin

from convserver.admin import repairs, site  # noqa: F401
from convserver.admin.resources import (  # noqa: F401
    audit,
    connections,
    conversations,
    feedback,
    imports,
    loops,
    model_use,
    operation,
    outbox,
    retention,
    secrets,
    tokens,
    user_settings,
    users,
    verification,
)

urls = admin.site.urls
