"""Light or dark, as this browser has chosen; else as its system has."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from convserver.web.settings_pages.page import form_of, saved

COOKIE = "theme"
THEMES = ("light", "dark")
"""What a browser may have chosen; any other value leaves it to the system."""
YEAR_S = 365 * 24 * 3600


def look(request: HttpRequest) -> dict[str, str]:
    """Tell every template which theme this browser has chosen; empty for the system's."""
    chosen = request.COOKIES.get(COOKIE, "")
    return {"theme": chosen if chosen in THEMES else ""}


@form_of("look")
def choose(request: HttpRequest) -> HttpResponse:
    """Keep the theme in this browser; anything but light and dark leaves it to the system.

    A script, which takes no HTML, has changed the page itself.
    """
    answer = saved(request, "look", "Saved.") if request.accepts("text/html") else HttpResponse(status=204)
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        answer.set_cookie(COOKIE, chosen, max_age=YEAR_S, samesite="Lax", secure=request.is_secure())
    else:
        answer.delete_cookie(COOKIE)
    return answer
