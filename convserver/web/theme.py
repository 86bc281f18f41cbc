"""The theme, light or dark, that this browser has chosen; otherwise that of its system."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from convserver.web.settings_pages.page import form_of, saved

COOKIE = "theme"
THEMES = ("light", "dark")  # the choices; any other value means the system's theme


def look(request: HttpRequest) -> dict[str, str]:
    """Return the context with this browser's theme for every template; empty for the system's."""
    chosen = request.COOKIES.get(COOKIE, "")
    return {"theme": chosen if chosen in THEMES else ""}


@form_of("look")
def choose(request: HttpRequest) -> HttpResponse:
    """Store the theme in this browser; any value except light and dark means the system's."""
    # A script does not accept HTML: it has changed the page itself.
    answer = saved(request, "look", "Saved.") if request.accepts("text/html") else HttpResponse(status=204)
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        year_s = 365 * 24 * 3600  # browsers keep a cookie for 400 days at most
        answer.set_cookie(COOKIE, chosen, max_age=year_s, samesite="Lax", secure=request.is_secure())
    else:
        answer.delete_cookie(COOKIE)
    return answer
