#!/usr/bin/env python3
"""The micro benchmarks run to their end, and each of their subjects is there with a time.

usage: micro_test.py DIRECTORY
"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import tap  # noqa: E402

DIRECTORY = os.path.abspath(sys.argv[1])


def run(program, *arguments):
    done = subprocess.run(
        [os.path.join(DIRECTORY, program), "--benchmark_min_time=0.001", *arguments],
        capture_output=True, text=True, check=False, timeout=240)
    return done


class Micro(unittest.TestCase):
    def times(self, program, pattern):
        """Nanoseconds by name."""
        done = run(program, f"--benchmark_filter={pattern}", "--benchmark_format=json")
        self.assertEqual(done.returncode, 0, done.stderr)
        units = {"ns": 1, "us": 1e3, "ms": 1e6}
        found = {}
        for row in json.loads(done.stdout)["benchmarks"]:
            self.assertFalse(row.get("error_occurred"), row)
            found[row["name"]] = row["real_time"] * units[row["time_unit"]]
        self.assertTrue(found, pattern)
        for name, nanoseconds in found.items():
            self.assertGreater(nanoseconds, 0, name)
        return found

    def test_kernels(self):
        found = self.times("bench_kernels", "combine/.*/sum/2/8192$")
        types = {name.split("/")[2] for name in found}
        self.assertLessEqual({"float32", "float16", "bfloat16", "int8", "complex64"}, types)
        self.assertIn("portable", {name.split("/")[1] for name in found})

    def test_planning(self):
        plans = self.times("bench_planning", "plan/allreduce/")
        self.assertLessEqual({f"plan/allreduce/ring/{n}" for n in (8, 64, 256)}, set(plans))
        self.assertLess(plans["plan/allreduce/ring/8"], plans["plan/allreduce/ring/256"])
        others = self.times("bench_planning", "(choose/allreduce|estimate/allreduce/ring)/")
        self.assertEqual(len(others), 6)

    def test_execution(self):
        self.assertIn("plan_steps/ring/8", self.times("bench_execution", "plan_steps/ring"))

    def test_slots(self):
        found = self.times("bench_slots", "round_trip/.*")
        self.assertIn("pair_round_trip/8/real_time", found)
        for memory in ("ordinary", "library"):
            self.assertIn(f"lane_round_trip/{memory}_memory/65536/real_time", found)

    def test_bad_arguments(self):
        for program in ("bench_kernels", "bench_planning", "bench_slots"):
            done = run(program, "--no-such-option")
            self.assertEqual(done.returncode, 1, program)
            self.assertIn("--no-such-option", done.stderr)


if __name__ == "__main__":
    tap.main()
