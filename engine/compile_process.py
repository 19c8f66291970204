"""One worker process that compiles: a schema in, tables out, whatever becomes of the process.

In: a source, a vocabulary and limits. Out: a `CompiledSchema`, or the error that compiling it ended with, as if it had
been compiled here. Cost: 1.2 ms beside the compile for a small schema, half of it to load the tables; 0.6 s and
80 MB to start it, the first time that it is needed.

What a process of its own gives: the decode thread keeps the interpreter to itself; a compile that breaks its time limit
is ended, whatever it is at; one that nobody waits for is ended too; memory has a bound that the system enforces; and
what makes an interpreter crash takes one compile with it. Compiles are asked to stop first, which loops with much to do
look for every few milliseconds, and a worker that does not answer is killed `STOPPING_S` later. A worker that died is
replaced by the next compile.

Rejected: `multiprocessing`'s own spawn, which imports the caller's main module again, and so runs it where it has no
guard; fork, which a process with threads must not do.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterable
from multiprocessing.connection import Connection
from time import monotonic

from engine.compile_worker import Answer, Begun, Message, Stop, Task, command
from engine.errors import EngineFailedError
from schemas_cache import (
    CompiledSchema,
    CompileTimeoutError,
    Finding,
    KatagamiError,
    Limits,
    Source,
    Vocabulary,
)
from schemas_cache.work import StoppedError

COMPILE = "schemas_cache.compile:compile_source"
STARTING_S = 60.0  # from the start of a process until it reads; 0.6 on a machine that has nothing else to do
STOPPING_S = 0.5  # from the request to stop until the kill; loops look a hundred times in it
ENDING_S = 2.0  # for a process whose pipe was closed; it ends in a millisecond
LOOK_EVERY_S = 0.05
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}  # a compile has no use for more, and each takes memory


class CompileProcess:
    """One worker process, used by one thread at a time, but for `stop`; started when it is needed.

    Parameters
    ----------
    compile_name : str
        `module:function` that the process compiles with.
    """

    def __init__(self, compile_name: str = COMPILE) -> None:
        self._compile_name = compile_name
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._number = 0  # of the latest task
        self._stopped_s: float | None = None  # when it was asked to stop
        self._known: set[str] = set()  # fingerprints of the vocabularies that the process has
        self._ended = False  # for good

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return None if self._process is None else self._process.pid

    def prepare(self, vocabularies: Iterable[Vocabulary]) -> None:
        """Start the process where it does not run, and give it the vocabularies that it does not know."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        for vocabulary in vocabularies:
            if vocabulary.fingerprint not in self._known:
                self._send(vocabulary)
                self._known.add(vocabulary.fingerprint)

    def compile(self, source: Source, vocabulary: Vocabulary, limits: Limits) -> CompiledSchema:
        """Compile in the process.

        Raises
        ------
        SchemaError
            As `compile_source`; `CompileTimeoutError` also where the process had to be killed.
        StoppedError
            After `stop`.
        EngineFailedError
            When the process died, or the compile raised anything else.
        """
        self._number, self._stopped_s = self._number + 1, None
        if self._ended:
            raise self._failure()
        try:
            self.prepare([vocabulary])
            self._send(Task(self._number, source, vocabulary.fingerprint, limits))
            answer = self._await_answer(self._number, limits.compile_timeout_s)
        except (EOFError, OSError) as error:
            raise self._failure() from error
        if answer.spent:
            self.close()
        if answer.error is not None:
            raise answer.error
        compiled = CompiledSchema.load(answer.tables, source, vocabulary, limits=limits)
        compiled.tokens.rows.add(answer.rows)
        return compiled

    def stop(self) -> None:
        """Ask for the end of the compile under way; called from any thread, and waits for nothing.

        The thread that waits for the compile passes it on: the pipe may be full while the process starts.
        """
        self._stopped_s = monotonic()

    def kill(self) -> None:
        """End the process at once and for good, one that is about to start too; called from any thread."""
        self._ended = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process; it is started again when it is needed."""
        self._close(ENDING_S)

    def _close(self, patience_s: float) -> None:
        """Close the pipe, and kill the process where it has not ended by itself soon enough."""
        process, pipe = self._process, self._pipe
        self._process, self._pipe, self._known = None, None, set()
        if pipe is not None:
            pipe.close()
        if process is not None:
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # the command is this interpreter and a module of ours
                command(theirs.fileno(), self._compile_name),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | _ENVIRONMENT,
                process_group=0,  # a terminal's Ctrl-C is for the server alone, which ends its workers
            )
        self._pipe = Connection(ours.detach())
        give_up_s = monotonic() + STARTING_S
        while not self._pipe.poll(LOOK_EVERY_S):
            if self._ended or monotonic() > give_up_s:
                self._close(0.0)
                raise self._failure(f"did not start within {STARTING_S:g} s")
        self._pipe.recv()  # that it reads

    def _send(self, message: Message) -> None:
        if self._pipe is None:
            raise BrokenPipeError("the worker has ended")
        self._pipe.send(message)

    def _await_answer(self, number: int, timeout_s: float) -> Answer:
        """Wait for it; past the time limit, or past a stop, the process is killed."""
        assert self._pipe is not None  # noqa: S101  # `prepare` has made it
        begun_s: float | None = None
        is_told = False  # to stop
        while True:
            if self._pipe.poll(LOOK_EVERY_S):
                message: Begun | Answer = self._pipe.recv()
                if isinstance(message, Answer):
                    return message
                begun_s = monotonic()
            now_s = monotonic()
            if self._stopped_s is not None and not is_told:
                is_told = True
                self._send(Stop(number))
            if self._stopped_s is not None and now_s > self._stopped_s + STOPPING_S:
                self._close(0.0)
                raise self._failure()
            if begun_s is not None and now_s > begun_s + timeout_s + STOPPING_S:
                self._close(0.0)
                reason = f"compiling took {now_s - begun_s:.2f} s, and the limit is {timeout_s:g} s"
                raise CompileTimeoutError([Finding("#", "", reason, "allow more time, or simplify the schema")])

    def _failure(self, how: str = "was ended") -> KatagamiError:
        """What is told when the process died at its work, or was ended."""
        process = self._process
        self.close()
        if self._ended or self._stopped_s is not None:
            return StoppedError("nobody waited for it any more")
        if process is not None:
            code = process.returncode
            how = f"died by signal {-code}" if code < 0 else f"ended with {code}"
        return EngineFailedError(f"compiling the schema failed: its process {how}")
