"""One thread for matrix products, unless the environment says otherwise; imported before numpy.

OpenBLAS reads the variable when it is loaded. Products of the sizes here gain little from a second thread on an idle
machine, and on a busy one the threads wait for each other: a forward pass of 4 ms has been seen to take 40.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
