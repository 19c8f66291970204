"""`katagami` with faults put in: run as `faulty_server.py FAULT,FAULT… serve …`, for what no request can bring about.

step            every step fails once a sequence has five tokens of an answer
compile_once    the first compile runs out of time; a failure is remembered for half a second instead of a minute
slow_compile    every compile takes two and a half seconds longer, and is a line in the log
slow_step       every step takes 50 ms longer
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from app.cli import main
from engine import compile_processes, compiler_pool, step
from schemas_cache import CompileTimeoutError, Finding

compile_schema = compile_processes.CompileProcesses.__call__
take_step = step.Decoder.step
failed_once = False


def failing_step(decoder: Any, *arguments: Any) -> Any:
    """A bug that shows in the middle of an answer."""
    if any(len(row.token_ids) > 4 for row in decoder.scheduler.running):
        raise RuntimeError("put in by a test")
    return take_step(decoder, *arguments)


def compile_out_of_time(*arguments: Any, **options: Any) -> Any:
    """The first time without success."""
    global failed_once
    if not failed_once:
        failed_once = True
        raise CompileTimeoutError([Finding("#", "", "put in by a test")])
    return compile_schema(*arguments, **options)


def slow_compile(*arguments: Any, **options: Any) -> Any:
    """As ever, after a while."""
    logging.getLogger("katagami").info("compiling")
    time.sleep(2.5)
    return compile_schema(*arguments, **options)


def slow_step(decoder: Any, *arguments: Any) -> Any:
    """The same."""
    time.sleep(0.05)
    return take_step(decoder, *arguments)


if __name__ == "__main__":
    for fault in sys.argv.pop(1).split(","):
        if fault == "step":
            step.Decoder.step = failing_step  # type: ignore[method-assign]
        elif fault == "compile_once":
            compile_processes.CompileProcesses.__call__ = compile_out_of_time  # type: ignore[method-assign]
            compiler_pool.FAILURE_KEPT_S = 0.5
        elif fault == "slow_compile":
            compile_processes.CompileProcesses.__call__ = slow_compile  # type: ignore[method-assign]
        else:
            step.Decoder.step = slow_step  # type: ignore[method-assign]
    main()
