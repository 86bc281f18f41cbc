"""The names of the tables that statements outside of Django's models use."""

from __future__ import annotations

EVENT = "conversations_event"
CONVERSATION = "conversations_conversation"
PURGE = "conversations_purge"
REPAIR = "conversations_guardrepair"
SEARCH_TEXT = "conversations_searchtext"
SEARCH_PROGRESS = "conversations_searchprogress"
TITLE_TEXT = "conversations_titletext"
TITLE_CHANGE = "conversations_titlechange"
CHANGE_NUMBER = "conversations_changenumber"
LABEL = "conversations_label"
