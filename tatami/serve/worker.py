"""The thread that owns the engine. Requests are queued to it from any thread; what it generates is told in its own thread."""

from __future__ import annotations

import sys
import threading
from collections import deque

from tatami.core.diagnostic import TatamiError
from tatami.core.faults.internal_fault import internal_fault
from tatami.generation.engine import Engine, Told
from tatami.generation.sequences import Sequence
from tatami.serve.bodies import BadRequest
from tatami.serve.metrics import Metrics


class Worker:
    """An engine in a thread. `places`: most sequences that wait or run, beyond which requests are refused."""

    def __init__(self, engine: Engine, places: int, metrics: Metrics) -> None:
        self.engine, self.places, self.metrics = engine, places, metrics
        self._wake = threading.Condition()
        self._new: deque[tuple[Sequence, Told]] = deque()
        self._open = 0
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="tatami-engine", daemon=True)

    def start(self) -> None:
        """Start the thread, which works until `close`."""
        self._thread.start()

    def close(self) -> None:
        """End all sequences as cancelled, and the thread after the step that it is in."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """True if requests are worked on."""
        return self._thread.is_alive() and not self._closing

    def now(self) -> dict[str, int]:
        """Numbers of sequences, for /metrics."""
        running = len(self.engine.running)
        return {"tatami_running": running, "tatami_waiting": max(0, self._open - running), "tatami_places": self.places}

    def check(self, prompt: tuple[int, ...]) -> None:
        """Raise BadRequest 400 for a prompt that does not fit."""
        try:
            self.engine.check(prompt)
        except TatamiError as error:
            (found,) = error.diagnostics
            raise BadRequest(f"{found.at}: {found.why}", param=found.at, code="context_length_exceeded") from None

    def submit(self, sequences: list[tuple[Sequence, Told]]) -> None:
        """Queue the sequences of one request, whose prompts are checked, all or none. Raises BadRequest 429 if there are not
        enough places, 503 while the server ends."""
        with self._wake:
            if self._closing:
                raise BadRequest("the server is ending", status=503)
            if self._open + len(sequences) > self.places:
                raise BadRequest("too many requests wait: try again later", status=429, code="queue_full")
            self._open += len(sequences)
            self._new += [(s, self._closed_by(told)) for s, told in sequences]
            self._wake.notify()

    def _closed_by(self, told: Told) -> Told:
        """`told`, with the place of the sequence given back at its end."""

        has_ended = False

        def tell(sequence: Sequence, text: str) -> None:
            nonlocal has_ended
            if not text:
                if has_ended:  # told again, since telling it failed
                    return
                has_ended = True
                with self._wake:
                    self._open -= 1
                self.metrics.add("tatami_generated_tokens_total", len(sequence.generated))
                if sequence.reason == "cancelled":
                    self.metrics.add("tatami_cancelled_total")
                if sequence.fault is not None:
                    self._note(sequence.fault)
            told(sequence, text)

        return tell

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._new and self.engine.is_idle and not self._closing:
                    self._wake.wait()
                new, self._new = self._new, deque()
                closing = self._closing
            for sequence, told in new:
                self.engine.add(sequence, told)
            if closing:
                self._end_all()
                return
            try:
                self.engine.step()
            except Exception as error:  # a fault of the engine itself: it ends the sequences, not the server
                self._note(error)
                self._end_all()

    def _note(self, error: Exception) -> None:
        """Count an error, and print it for whoever runs the server."""
        self.metrics.add("tatami_faults_total")
        found = error.diagnostics[0] if isinstance(error, TatamiError) else internal_fault("step", error)
        print(found, file=sys.stderr, flush=True)

    def _end_all(self) -> None:
        for sequence, _ in (*self.engine.running.values(), *self.engine.waiting):
            sequence.cancel()
        self.engine.drop_cancelled()
