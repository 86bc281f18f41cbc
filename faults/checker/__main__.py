"""Check a history: `python -m faults.checker FILE`, in which the lines of what is stored may stand anywhere.

Exit status: 0 if it is right, 1 if not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from faults.checker.history import AT_THE_END, read
from faults.checker.judge import checked


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong and how long it took to see that."""
    (name,) = arguments
    began = time.perf_counter()
    path = Path(name)
    stored = [record for record in read(path) if record.did in AT_THE_END]
    findings = checked((record for record in read(path) if record.did not in AT_THE_END), stored)
    for violation in findings.violations:
        print(f"{violation.rule}: {violation.talk}: {violation.sentence}")
    took = time.perf_counter() - began
    wrong = findings.broken.total()
    print(f"{findings.counts.total():,} records, {wrong:,} violations, {took:.1f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
