"""The form of the section of the account."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from convserver.web.login import tell_when_to_return
from convserver.web.settings_pages.page import back, form_of, saved, show
from convserver.web.settings_pages.password import PasswordForm, has_password


@sensitive_post_parameters()
@form_of("account")
def change_password(request: HttpRequest) -> HttpResponse:
    """Change the user's password; redirect users without one to the settings."""
    if not has_password(request):  # the page has no such form then
        return back("account")
    form = PasswordForm(request, request.POST)
    if not form.is_valid():
        answer = show(request, form)
        tell_when_to_return(answer, form)
        return answer
    form.change()
    return saved(request, "account", "Password changed. You were logged out everywhere else.")
