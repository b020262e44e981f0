"""Process groups, one a peer, that take turns. A group sleeps in a pipe between its visits."""
import json
import os
import select
import signal
import statistics
import subprocess
import time


# Seconds that a group may take to start, on a loaded machine too.
LONGEST_START = 120


class Lost(Exception):
    """The group is gone; the text says why."""


class Group:
    """The running ranks of one peer."""

    def __init__(self, peer, command, ranks, directory):
        self.peer = peer
        os.mkdir(directory)
        self.log = os.path.join(directory, "log")
        paths = [os.path.join(directory, name) for name in [*map(str, range(ranks)), "answers"]]
        for path in paths:
            os.mkfifo(path)
        # Both ends are held open, so that neither side waits for the other to come.
        *self.commands, self.answers = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in paths]
        self.pending = b""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)

    def _said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        ours = [line for line in lines if line.startswith("compare:")]
        return (ours or lines or ["it printed nothing"])[0]

    def answer(self, timeout):
        """The next line, parsed."""
        end = time.monotonic() + timeout
        while b"\n" not in self.pending:
            if select.select([self.answers], [], [], 0.2)[0]:
                self.pending += os.read(self.answers, 1 << 16)
            elif self.process.poll() is not None:
                raise Lost(f"ended with status {self.process.returncode}: {self._said()}")
            elif time.monotonic() > end:
                raise Lost(f"no answer within {timeout:g} s: {self._said()}")
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def visit(self, collective, size, budget, timeout):
        line = f"{collective} {size} {budget}\n".encode()
        for command in self.commands:
            os.write(command, line)
        return self.answer(timeout)

    def close(self):
        """Ranks end when their pipes close; those that do not are ended."""
        for pipe in [*self.commands, self.answers]:
            os.close(pipe)
        for kind in (None, signal.SIGTERM, signal.SIGKILL):
            try:
                if kind is not None:
                    os.killpg(self.process.pid, kind)
                self.process.wait(10)
                return
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                pass


def quartiles(values):
    values = sorted(values)
    return values[len(values) // 4], values[(3 * len(values)) // 4]


class Turns:
    """All groups, and what was lost of them on the way."""

    def __init__(self, launcher, peers, ranks, scratch, most_bytes, timeout):
        self.timeout, self.groups, self.absent, self.versions = timeout, {}, {}, {}
        try:
            for peer in peers:
                directory = os.path.join(scratch, peer.name)
                command = launcher.command(peer, ranks, directory, most_bytes)
                group = self.groups[peer.name] = Group(peer, command, ranks, directory)
                try:
                    self.versions[peer.name] = group.answer(LONGEST_START)["ready"]
                except Lost as lost:
                    self.drop(peer.name, f"did not start: {lost}")
        except BaseException:
            self.close()
            raise

    def drop(self, name, why):
        self.absent[name] = why
        self.groups.pop(name).close()

    def close(self):
        for name in list(self.groups):
            self.groups.pop(name).close()

    def visit(self, name, cell, budget):
        """The answer, or None where the peer was lost in it."""
        try:
            return self.groups[name].visit(*cell, budget, self.timeout)
        except Lost as lost:
            self.drop(name, f"{cell[0]} of {cell[1]} bytes: {lost}")
            return None

    def measure(self, cell, rounds, budget):
        """One result a peer, without ratios: {name: {..., "rounds_us": {round: us}}}."""
        seen = {}
        # The first visit builds what later ones find built, and settles the length of a batch.
        for number in range(-1, rounds):
            names = list(self.groups)
            for place in range(len(names)):
                name = names[(place + max(number, 0)) % len(names)]
                if name not in self.groups or seen.get(name, {}).get("lacks"):
                    continue
                answer = self.visit(name, cell, budget)
                if answer is None:
                    continue
                entry = seen.setdefault(name, {"rounds_us": {}, "least_us": [], "wrong": None})
                if "lacks" in answer:
                    entry["lacks"] = answer["lacks"]
                    continue
                if answer["wrong"] is not None:
                    entry["wrong"] = (entry["wrong"] or 0) + answer["wrong"]
                if number >= 0:
                    entry["rounds_us"][number] = answer["time_us"]["median"]
                    entry["least_us"].append(answer["time_us"]["min"])
                    entry.update({key: answer[key] for key in ("bytes", "batch", "algorithm")})
        return seen


def ratios(entry, base):
    """Of the rounds that both have."""
    both = entry["rounds_us"].keys() & base["rounds_us"].keys()
    return [entry["rounds_us"][r] / base["rounds_us"][r] for r in both]


def summary(values):
    low, high = quartiles(values)
    return {"median": statistics.median(values), "low": low, "high": high}
