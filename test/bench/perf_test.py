#!/usr/bin/env python3
"""hetccl_perf as its users start it: under mpirun, with good and bad arguments.

usage: perf_test.py HETCCL_PERF CORRUPTING_LIBRARY
"""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import mpi  # noqa: E402
import tap  # noqa: E402

PERF = os.path.abspath(sys.argv[1])
CORRUPT = os.path.abspath(sys.argv[2])
PLAIN = "allreduce reduce reducescatter broadcast allgather alltoall gather scatter scan exscan"
V_FORMS = "reducescatterv allgatherv alltoallv gatherv scatterv".split()
COLLECTIVES = PLAIN.split() + V_FORMS
SMALL = ["-b", "8", "-e", "40000", "-f", "70", "-n", "3", "-w", "1"]


def perf(ranks, *arguments, env=None, wrap=()):
    return mpi.run(ranks, [*wrap, PERF, *arguments], env=env)


class Perf(unittest.TestCase):
    def succeed(self, *arguments, **options):
        done = perf(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def refuse(self, expected, *arguments, **options):
        done = perf(*arguments, **options)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(expected, done.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("hetccl_perf:")]
        self.assertEqual(len(said), 1, done.stderr)

    def test_every_collective_is_right(self):
        for collective in COLLECTIVES:
            for ranks in (1, 2, 3):
                with self.subTest(collective=collective, ranks=ranks):
                    out = self.succeed(ranks, collective, *SMALL, "--format", "json")
                    results = json.loads(out)["results"]
                    self.assertEqual({r["in_place"] for r in results}, {True, False})
                    for r in results:
                        self.assertEqual((r["wrong"], r["ranks"]), (0, ranks))
                        self.assertEqual(r["collective"], collective)
                        times = r["time_us"]
                        self.assertLessEqual(times["min"], times["median"])
                        self.assertLessEqual(times["median"], times["p99"])
                        self.assertLessEqual(times["p99"], times["max"])

    def test_uneven_blocks_are_right(self):
        for collective in V_FORMS:
            for skew in ("skewed", "zero"):
                with self.subTest(collective=collective, skew=skew):
                    out = self.succeed(3, collective, *SMALL, "--skew", skew, "--root", "1",
                                       "--compare", "mpi", "--format", "json")
                    results = json.loads(out)["results"]
                    self.assertEqual({(r["wrong"], r["skew"]) for r in results}, {(0, skew)})

    def test_types_and_operators(self):
        for dtype, op in (("half", "sum"), ("bfloat16", "avg"), ("float8e4m3", "sum"),
                          ("float8e5m2", "max"), ("uint8", "prod"), ("int64", "bxor"),
                          ("complex128", "sum"), ("bool", "lor"), ("doubleint", "maxloc")):
            with self.subTest(dtype=dtype, op=op):
                chosen = ["-d", dtype, "-o", op, "--format", "json"]
                out = self.succeed(3, "allreduce", *SMALL, *chosen)
                self.assertEqual({r["wrong"] for r in json.loads(out)["results"]}, {0})

    def test_meta_says_who_measured(self):
        meta = json.loads(self.succeed(2, "barrier", "-n", "2", "--format", "json"))["meta"]
        self.assertRegex(meta["version"], r"^\d+\.\d+\.\d+$")
        self.assertTrue(meta["commit"])
        self.assertIn("MPI", meta["mpi"])
        self.assertEqual([r["rank"] for r in meta["ranks"]], [0, 1])
        self.assertEqual(len(meta["hosts"]), 1)
        self.assertEqual(len(meta["rank_table"]), 2)
        self.assertTrue(meta["settings"])

    def test_compare_adds_mpi(self):
        out = self.succeed(2, "allreduce", *SMALL, "--compare", "mpi", "--format", "json")
        for r in json.loads(out)["results"]:
            self.assertGreater(r["mpi_time_us"]["median"], 0)
            ratio = r["mpi_time_us"]["median"] / r["time_us"]["median"]
            self.assertAlmostEqual(r["speedup"], ratio, places=6)

    def test_compare_covers_every_collective(self):
        for collective in COLLECTIVES + ["barrier"]:
            with self.subTest(collective=collective):
                done = perf(3, collective, *SMALL, "--root", "2", "--compare", "mpi")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertNotIn("warning", done.stderr)
                self.assertIn("geometric mean", done.stdout)

    def test_text_ends_with_wrong_values_and_bandwidth(self):
        lines = self.succeed(2, "allreduce", *SMALL).splitlines()
        self.assertEqual(lines[-2], "# Out of bounds values : 0 OK")
        self.assertRegex(lines[-1], r"^# Avg bus bandwidth    : [0-9.e+-]+$")

    def test_csv(self):
        out = self.succeed(2, "allgather", *SMALL, "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual({row["wrong"] for row in rows}, {"0"})
        self.assertEqual({row["ranks"] for row in rows}, {"2"})

    def test_size_is_the_larger_buffer(self):
        one = ["-b", "4096", "-e", "4096", "-n", "2", "--format", "json"]
        out = self.succeed(2, "allgather", *one)
        for r in json.loads(out)["results"]:
            self.assertEqual((r["bytes"], r["count"]), (4096, 512))

    def test_memory_may_differ_by_rank(self):
        out = self.succeed(2, "allreduce", *SMALL, "--memory", "host,host-lib", "--format", "json")
        document = json.loads(out)
        self.assertEqual([r["memory"] for r in document["meta"]["ranks"]], ["host", "host-lib"])
        self.assertEqual({r["wrong"] for r in document["results"]}, {0})

    def test_algorithm_can_be_forced(self):
        out = self.succeed(3, "allreduce", *SMALL, "--algo", "ring", "--format", "json")
        self.assertEqual({r["algorithm"] for r in json.loads(out)["results"]}, {"ring"})
        done = perf(2, "allreduce", *SMALL, "--algo", "rong")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ring", done.stderr)

    def test_output_goes_to_the_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "result.json")
            out = self.succeed(2, "reduce", *SMALL, "--format", "json", "--output", path)
            self.assertEqual(out, "")
            with open(path, encoding="utf-8") as file:
                self.assertTrue(json.load(file)["results"])
        self.refuse("--output", 2, "reduce", *SMALL, "--output", "/no/such/directory/x")

    def test_wrong_values_fail(self):
        done = perf(2, "allreduce", *SMALL, env={"LD_PRELOAD": CORRUPT})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"# Out of bounds values : [1-9]\d* FAILED")

    def test_bad_arguments_are_named(self):
        self.refuse("-b 8 is more than -e 4", 2, "allreduce", "-b", "8", "-e", "4")
        self.refuse("'2x'", 2, "allreduce", "-b", "2x")
        self.refuse("'16E'", 2, "allreduce", "-e", "16E")
        self.refuse("--memory: 'gpu' is unknown", 2, "allreduce", "--memory", "gpu")
        self.refuse("--memory: 3 kinds for 2 ranks", 2, "allreduce", "--memory", "host,host,host")
        self.refuse("operator avg", 2, "allreduce", "-o", "avg", "--compare", "mpi")

    def test_more_memory_than_there_is(self):
        self.refuse("available", 2, "allreduce", "-b", "100T", "-e", "100T")

    def test_one_rank_without_memory_lets_all_leave(self):
        limit = 'if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 1 ]; then ulimit -v 4000000; fi'
        wrap = ["sh", "-c", limit + '; exec "$@"', "sh"]
        done = perf(2, "allreduce", "--in-place", "-b", "5G", "-e", "5G", wrap=wrap)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "rank [01]: .*(allocate|available)")

    def test_tasks_that_each_see_one_rank_are_refused(self):
        env = dict(os.environ, SLURM_NTASKS="4", SLURM_PROCID="1")
        done = subprocess.run([PERF, "allreduce", *SMALL], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("SLURM_NTASKS=4", done.stderr)


class Replay(unittest.TestCase):
    def replay(self, ranks, text, *arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            return perf(ranks, "replay", file.name, "-n", "3", "-w", "1", *arguments), file.name

    def test_step_and_calls(self):
        text = "# one step\nallreduce 1000 float32 sum\nbroadcast 70 int8 none 1\nbarrier\n"
        done, _ = self.replay(2, text, "--compare", "mpi", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual([r["collective"] for r in document["results"]],
                         ["allreduce", "broadcast", "barrier"])
        self.assertEqual({r["wrong"] for r in document["results"]}, {0})
        self.assertGreater(document["step"]["time_us"]["median"], 0)
        self.assertGreater(document["step"]["speedup"], 0)

    def test_text(self):
        done, _ = self.replay(2, "allreduce 1000 float32 sum\nalltoall 9 int32\n")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^# Step of 2 calls    : [0-9.]+ us$")

    def test_bad_line_is_named(self):
        done, name = self.replay(2, "barrier\nallreduce x float32 sum\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{name}:2:", done.stderr)

    def test_missing_file_is_named(self):
        done = perf(2, "replay", "/no/such/list")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/no/such/list", done.stderr)

    def test_workloads_are_readable(self):
        path = os.path.join(HERE, "../../bench/workloads/resnet50.tensors.txt")
        done = perf(2, "replay", path, "-n", "1", "-w", "0", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = json.loads(done.stdout)["results"]
        self.assertEqual(sum(r["count"] for r in results), 25_557_032)
        self.assertEqual({r["wrong"] for r in results}, {0})


if __name__ == "__main__":
    tap.main()
