#!/usr/bin/env python3
"""bench/compare as its users start it: peers taking turns, good and bad arguments, lost peers.

usage: compare_test.py BUILD_DIRECTORY CORRUPTING_LIBRARY
"""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
sys.path.insert(0, os.path.join(HERE, "../../bench/compare"))
import bounds  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
CORRUPT = os.path.abspath(sys.argv[2])
SCRIPT = os.path.join(HERE, "../../bench/compare/compare.py")
COLLECTIVES = ["allreduce", "reducescatter", "allgather", "broadcast", "reduce", "alltoall"]
QUICK = ["--rounds", "2", "--budget", "0.002"]


def built(name):
    return os.path.exists(os.path.join(BUILD, "bench/compare", name))


# Any MPI library that is there; a driver was built for it.
MPI = "ompi" if built("driver_ompi") else "mpich"


class Compare(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = holder.name
        self.output = os.path.join(self.root, "results")

    def command(self, *arguments, build=BUILD):
        return [sys.executable, SCRIPT, "--build", build, "--output", self.output, *arguments]

    def call(self, *arguments, build=BUILD, **environment):
        done = subprocess.run(self.command(*arguments, build=build), capture_output=True, text=True,
                              check=False, timeout=240,
                              env={**os.environ, "TMPDIR": self.root, **environment})
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(glob.glob(os.path.join(self.root, "hetccl.compare.*")), [])
        return done

    def report(self):
        with open(os.path.join(self.output, "compare.json"), encoding="utf-8") as file:
            return json.load(file)

    def measure(self, *arguments, status=0, build=BUILD, **environment):
        done = self.call(*arguments, *QUICK, build=build, **environment)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return self.report(), done

    def test_two_peers_two_sizes(self):
        report, done = self.measure("--peers", f"{MPI},hetccl", "--sizes", "64,8K",
                                    "--collectives", "allreduce,alltoall")
        meta = report["meta"]
        self.assertEqual((meta["ranks"], meta["base"], meta["absent"]), (2, MPI, {}))
        self.assertEqual(meta["sizes"], [64, 8192])
        self.assertIn("MPI", meta["peers"][MPI]["version"])
        self.assertIn("hetccl", meta["peers"]["hetccl"]["version"])
        rows = {(r["collective"], r["bytes"], r["peer"]): r for r in report["results"]}
        self.assertEqual(set(rows), {(c, s, p) for c in ("allreduce", "alltoall")
                                     for s in (64, 8192) for p in (MPI, "hetccl")})
        for (collective, size, peer), row in rows.items():
            with self.subTest(collective=collective, size=size, peer=peer):
                self.assertEqual((row["wrong"], row["rounds"], row["ranks"]), (0, 2, 2))
                self.assertEqual(row["moved_bytes"], size)
                self.assertLessEqual(row["time_us"]["min"], row["time_us"]["median"])
                self.assertGreater(row["busbw_gbps"], 0)
                self.assertEqual(bool(row["algorithm"]), peer == "hetccl")
                if peer == MPI:
                    self.assertEqual(set(row["ratio"].values()), {1.0})
                else:
                    self.assertGreater(row["ratio"]["median"], 0)
        for cell in report["cells"]:
            self.assertEqual(cell["best_peer"], MPI)
            self.assertEqual(list(cell["to_best_peer"]), ["hetccl"])
        with open(os.path.join(self.output, "compare.md"), encoding="utf-8") as file:
            markdown = file.read()
        self.assertEqual(done.stdout, markdown)
        for expected in ("## allreduce", "## alltoall", f"| bytes | {MPI} | hetccl |", "| 8 K | 1.00",
                         "# 2 ranks"):
            self.assertIn(expected, markdown)
        self.assertNotIn("WRONG", markdown)
        plots = glob.glob(os.path.join(self.output, "*.svg"))
        self.assertEqual(len(plots), 0 if "no plots: " in done.stderr else 2, done.stderr)

    def test_every_peer_and_collective_is_right(self):
        # 3 ranks and 1000 bytes: blocks that are no power of two, and a size that must be cut.
        report, _ = self.measure("-n", "3", "--sizes", "1000", "--plot", "none")
        seen = {}
        for row in report["results"]:
            seen.setdefault(row["peer"], set()).add(row["collective"])
            wrong = None if row["peer"] == "limit" else 0
            self.assertEqual(row["wrong"], wrong, row)
        self.assertEqual(set(seen), set(report["meta"]["peers"]))
        self.assertLessEqual({"hetccl", "hetccl-mem", "limit", MPI}, set(seen))
        for peer, collectives in seen.items():
            lacking = {"reducescatter"} if peer == "gloo" else set()
            self.assertEqual(collectives, set(COLLECTIVES) - lacking, peer)
        for peer, why in report["meta"]["absent"].items():
            self.assertRegex(why, "not built|not installed", peer)

    def test_wrong_values_fail(self):
        report, done = self.measure("--peers", f"{MPI},hetccl", "--sizes", "4K", "--collectives",
                                    "allreduce", "--plot", "none", status=1, LD_PRELOAD=CORRUPT)
        wrong = {row["peer"]: row["wrong"] for row in report["results"]}
        self.assertEqual(wrong[MPI], 0)
        self.assertGreater(wrong["hetccl"], 0)
        self.assertIn("WRONG", done.stdout)

    def fake_build(self, text):
        """A build directory in which the driver of hetccl is a script."""
        build = os.path.join(self.root, "build")
        drivers = os.path.join(build, "bench/compare")
        os.makedirs(drivers)
        for path in glob.glob(os.path.join(BUILD, "bench/compare/driver_*")):
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                os.symlink(path, os.path.join(drivers, os.path.basename(path)))
        path = os.path.join(drivers, "driver_hetccl")
        os.remove(path)
        with open(path, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return build

    def test_a_peer_that_does_not_start_is_named(self):
        build = self.fake_build("echo 'compare: no luck' >&2; exit 3")
        report, done = self.measure("--peers", f"{MPI},hetccl", "--sizes", "64", "--collectives",
                                    "allreduce", "--plot", "none", status=1, build=build)
        self.assertEqual({row["peer"] for row in report["results"]}, {MPI})
        self.assertRegex(report["meta"]["absent"]["hetccl"],
                         "did not start: ended with status 3: compare: no luck")
        self.assertIn("compare.py: hetccl: did not start", done.stderr)

    READY = ('shift; cd "$1"; [ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 0 ] && '
             'echo \'{"ready": "fake"}\' >answers; ')

    def test_a_peer_lost_on_the_way_is_named(self):
        build = self.fake_build(self.READY + "head -n 1 <0; exit 4")
        report, _ = self.measure("--peers", f"{MPI},hetccl", "--sizes", "64", "--collectives",
                                 "allreduce,alltoall", "--plot", "none", status=1, build=build)
        self.assertIn("allreduce of 64 bytes: ended with status", report["meta"]["absent"]["hetccl"])
        self.assertEqual({(row["peer"], row["collective"]) for row in report["results"]},
                         {(MPI, "allreduce"), (MPI, "alltoall")})

    def test_a_silent_peer_is_named(self):
        build = self.fake_build(self.READY + "exec sleep 100")
        report, _ = self.measure("--peers", "hetccl", "--sizes", "64", "--collectives", "allreduce",
                                 "--plot", "none", "--timeout", "1", status=1, build=build)
        self.assertIn("allreduce of 64 bytes: no answer within 1 s",
                      report["meta"]["absent"]["hetccl"])
        self.assertEqual(report["results"], [])

    def test_bad_arguments_are_named(self):
        for arguments, expected in (
            (["--peers", "ompi,nccl"], "--peers: 'nccl' is unknown; allowed: ompi, "),
            (["--collectives", "scan"], "--collectives: 'scan' is unknown; allowed: allreduce, "),
            (["--sizes", "8,x"], "--sizes: 'x' is no size"),
            (["--sizes", "3"], "--sizes: '3' is no size"),
            (["--ranks", "1"], "--ranks 1: at least 2"),
            (["--rounds", "0"], "--rounds 0: at least 1"),
            (["--budget", "0"], "--budget 0.0: at least"),
            (["--peers", "hetccl", "--base", "ompi"], "--base: 'ompi' is not among the peers"),
            (["--plot", "pdf"], "argument --plot"),
            (["--nodes", "1"], "--nodes 1: at least 2"),
            (["--nodes", "2", "-n", "4"], "--ranks: the nodes of a cluster have one rank each"),
            (["--nodes", "2", "--rates", "1gbit,fast"], "--rates: '1gbit,fast'"),
            (["--nodes", "2", "--peers", "mpich"], "--peers: 'mpich' is unknown; allowed: ompi, "),
        ):
            with self.subTest(arguments=arguments):
                done = self.call(*arguments)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(expected, done.stderr)
        self.assertFalse(os.path.exists(self.output))

    def test_without_a_build(self):
        done = self.call(build=self.root)
        self.assertEqual(done.returncode, 2)
        self.assertIn("build first", done.stderr)
        done = self.call("--peers", "hetccl", build=self.root)
        self.assertIn("--peers: hetccl: driver_hetccl was not built", done.stderr)

    def test_an_interrupt_ends_all_ranks(self):
        command = self.command("--peers", f"{MPI},hetccl", "--collectives", "allreduce",
                               "--rounds", "100000")
        environment = {**os.environ, "TMPDIR": self.root}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            wait_for(lambda: len(ranks_below(self.root)) >= 4)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(100), 128 + signal.SIGTERM)
            self.assertNotIn("Traceback", process.stderr.read())
        wait_for(lambda: not ranks_below(self.root))
        self.assertEqual(glob.glob(os.path.join(self.root, "hetccl.compare.*")), [])


class Bounds(unittest.TestCase):
    MEGABYTE = 1e6  # at 1 MB/s: a second

    def seconds(self, collective, rates):
        parsed = bounds.parse_rates(rates)
        return bounds.least_us(collective, self.MEGABYTE, parsed) * bounds.PAYLOAD / 1e6

    def test_equal_links_need_what_a_ring_takes(self):
        for nodes in (2, 4, 8):
            rates = ",".join(["8mbit"] * nodes)
            self.assertAlmostEqual(self.seconds("allreduce", rates), 2 * (nodes - 1) / nodes)
            self.assertAlmostEqual(self.seconds("allgather", rates), (nodes - 1) / nodes)
            self.assertAlmostEqual(self.seconds("broadcast", rates), 1)

    def test_a_slow_link_carries_everything_once(self):
        self.assertAlmostEqual(self.seconds("allreduce", "80mbit,80mbit,80mbit,8mbit"), 1)
        # Not so slow: all links together decide.
        self.assertAlmostEqual(self.seconds("allreduce", "12mbit,8mbit,8mbit,1mbps"), 6 / 4.5)

    def test_rates(self):
        self.assertEqual(bounds.parse_rates("1gbit,500Mbit,2.5kbps"), [125e6, 62.5e6, 2500])
        for wrong in ("", "1", "0mbit", "1gbit,", "fast"):
            self.assertIsNone(bounds.parse_rates(wrong), wrong)


def ranks_below(directory):
    """The drivers whose pipes are there."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"driver_" in words[0] and any(w.startswith(directory.encode()) for w in words):
            found.append(path)
    return found


def wait_for(condition, seconds=100):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.05)


if __name__ == "__main__":
    tap.main()
