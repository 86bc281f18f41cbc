#!/usr/bin/env python
"""Django's commands, with convserver's settings."""

import os
import sys

from django.core.management import execute_from_command_line

from convserver import private_files
from convserver.variables import ConfigurationError


def main() -> None:
    private_files.create_privately()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    try:
        execute_from_command_line(sys.argv)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
