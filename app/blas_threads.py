"""How many threads matrix products have: `--threads`, `KATAGAMI_THREADS`, else one; imported before numpy.

OpenBLAS reads its variable when it is loaded, which is before the command line is parsed; so the flag is looked for
here, and `Settings.threads` only checks it. A variable of the BLAS itself, where there is one, wins.

One thread is the default. The shipped models gain nothing from a second one. SmolLM2 gains on a machine that is its
own, up to 1.3 times at one row; but where anything else wants a core the threads wait for each other. On two cores with
a load of six, one row took 74 ms at the median and 100 in the slowest tenth with one thread, 414 and 1,121 with two;
eight rows 252 and 289, against 1,481 and 8,019.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

FLAG, VARIABLE, BLAS_VARIABLE = "--threads", "KATAGAMI_THREADS", "OPENBLAS_NUM_THREADS"


def asked_threads(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """What the command line or the environment asks for, the flag first; one where that is no number."""
    found = environment.get(VARIABLE, "")
    for number, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == FLAG:
            found = value or "".join(arguments[number + 1 : number + 2])
    return found if found.isascii() and found.isdigit() and int(found) else "1"


os.environ.setdefault(BLAS_VARIABLE, asked_threads(sys.argv[1:], os.environ))
