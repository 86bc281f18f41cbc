"""`python -m convserver`: the same as the `convserver` command."""

import sys

from convserver.cli import main

if __name__ == "__main__":
    sys.exit(main())
