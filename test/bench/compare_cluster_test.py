#!/usr/bin/env python3
"""bench/compare between the nodes of scripts/vcluster: what crosses is what the links let through.

usage: compare_cluster_test.py BUILD_DIRECTORY
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
SCRIPT = os.path.join(HERE, "../../bench/compare/compare.py")
VCLUSTER = os.path.join(HERE, "../../scripts/vcluster")


class CompareCluster(unittest.TestCase):
    def test_two_nodes(self):
        with tempfile.TemporaryDirectory() as output:
            done = subprocess.run(
                [sys.executable, SCRIPT, "--build", BUILD, "--output", output, "--nodes", "2",
                 "--rates", "200mbit", "--peers", "ompi,hetccl", "--collectives", "allreduce",
                 "--sizes", "2M", "--rounds", "1", "--budget", "0.1", "--plot", "none"],
                capture_output=True, text=True, check=False, timeout=400)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(os.path.join(output, "compare.json"), encoding="utf-8") as file:
                report = json.load(file)
        self.assertIn("2 nodes, links of 200mbit", done.stdout)
        bound = report["cells"][0]["bound_us"]
        self.assertAlmostEqual(bound, 2 * 2**20 / 25e6 * 1e6 * 1514 / 1448, delta=1)
        self.assertEqual({row["peer"] for row in report["results"]}, {"ompi", "hetccl"})
        for row in report["results"]:
            self.assertEqual(row["wrong"], 0, row)
            # The shaper lets 96 kB through at once; memory that is shared would be far quicker.
            self.assertGreater(row["time_us"]["min"], 0.85 * bound, row)
        left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
        self.assertNotIn(report["meta"]["cluster"], left.stdout)


def why_not():
    """Why there can be no cluster here, or None."""
    if not os.path.exists(os.path.join(BUILD, "bench/compare/driver_ompi")):
        return "no driver for Open MPI was built"
    tried = subprocess.run([VCLUSTER, "up", "-k", "2"], capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        subprocess.run([VCLUSTER, "down", tried.stdout.strip()], check=True)
        return None
    return tried.stderr.strip() if tried.returncode == 77 else None


if __name__ == "__main__":
    tap.main(skip=why_not())
