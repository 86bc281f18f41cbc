"""`create_token`: create an API token from the command line."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from sessions_app.models import TOKEN_NAME_MAX_LENGTH, ApiToken, Grant, Scope
from sessions_app.storage import usage


class Command(BaseCommand):
    """Create an API token."""

    help = "Create an API token for a user and print it once. Only its digest is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="the user that the token belongs to")
        parser.add_argument("--name", required=True, help="a name by which to recognise the token later")
        parser.add_argument(
            "--scope",
            action="append",
            choices=[scope.value for scope in Scope],
            dest="scopes",
            help="what the token may do; give it several times for several scopes (default: all)",
        )

    def handle(
        self, *args: Any, username: str, name: str, scopes: list[str] | None = None, **options: Any
    ) -> None:
        # Only the token is printed, so that a script can read it.
        user = User.objects.filter(username=username, is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {username!r}. Create one with createsuperuser.")
        if not 0 < len(name) <= TOKEN_NAME_MAX_LENGTH:
            raise CommandError(f"A token's name has 1 to {TOKEN_NAME_MAX_LENGTH} characters.")
        try:
            with transaction.atomic():
                usage.require_free_name(user.pk, name)
                _, text = ApiToken.issue(user.pk, name, Grant(scopes=list(map(Scope, scopes or Scope))))
        except usage.TokenNameTaken as error:
            raise CommandError(str(error)) from error
        self.stdout.write(text)
