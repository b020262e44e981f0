#!/usr/bin/env python3
"""Ranks with memory of different kinds: hetccl_perf --memory and hetccl_info --paths on the
simulated devices.

usage: memory_test.py HETCCL_PERF HETCCL_INFO
"""
import json
import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import mpi  # noqa: E402
import tap  # noqa: E402

PERF = os.path.abspath(sys.argv[1])
INFO = os.path.abspath(sys.argv[2])
MIXED = "host,sim:cuda,sim:hip,host"
FEW = ["-n", "2", "-w", "1"]
# A node of its own for each rank.
APART = ["sh", "-c", 'HETCCL_NODE=n${OMPI_COMM_WORLD_RANK:-$PMI_RANK} exec "$@"', "sh"]


def collectives():
    """All that hetccl_perf knows, by its own account."""
    said = mpi.run(1, [PERF, "?"]).stderr
    return re.search(r"allowed: ([a-z, ]+), replay", said).group(1).split(", ")


def document(text):
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


class Memory(unittest.TestCase):
    def right(self, ranks, *arguments, env=None, wrap=()):
        done = mpi.run(ranks, [*wrap, PERF, *arguments, *FEW, "--format", "json"], env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = document(done.stdout)
        self.assertTrue(found["results"])
        self.assertEqual({r["wrong"] for r in found["results"]}, {0}, done.stdout)
        return found

    def refused(self, expected, ranks, *command, env=None):
        done = mpi.run(ranks, command, env=env)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        said = [line for line in done.stderr.splitlines() if line.startswith("hetccl_")]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertIn(expected, said[0])

    def test_every_collective_with_a_mixture(self):
        known = collectives()
        self.assertIn("allreduce", known)
        for collective in known:
            with self.subTest(collective=collective):
                sizes = [] if collective == "barrier" else ["-b", "48", "-e", "2M", "-f", "200"]
                found = self.right(4, collective, *sizes, "--memory", MIXED, "--root", "1")
                labels = {r["memory"] for r in found["results"]}
                self.assertEqual(labels, {"host+sim:cuda+sim:hip+host"})

    def test_rank_table(self):
        table = self.right(4, "barrier", "--memory", MIXED)["meta"]["rank_table"]
        self.assertEqual([r["kind"] for r in table], MIXED.split(","))
        self.assertEqual([r["memory"] for r in table], MIXED.split(","))
        self.assertEqual([bool(r["device"]) for r in table], [False, True, True, False])
        self.assertEqual({p["path"] for p in table[0]["paths"].values()}, {"host"})
        self.assertEqual({p["path"] for p in table[1]["paths"].values()}, {"staged"})
        self.assertEqual(sorted(table[2]["paths"]), ["0", "1", "3"])

    def test_text_names_devices_and_paths(self):
        done = mpi.run(2, [PERF, "barrier", *FEW, "--memory", "host,sim:hip"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^#  rank 0 on \S+ pid \d+ memory host$")
        self.assertRegex(done.stdout, r"(?m)^#  rank 1 .* memory sim:hip on .*: staged to 0$")

    def test_every_path(self):
        sizes = ["-b", "64", "-e", "1M", "-f", "128"]
        wanted = {"staged": {"staged"}, "auto": {"ipc", "staged"}, "direct": {"ipc"}}
        for path, names in wanted.items():
            with self.subTest(path=path):
                env = {"HETCCL_PATH": path}
                found = self.right(3, "allreduce", *sizes, "--memory", "sim:cuda", env=env)
                for rank in found["meta"]["rank_table"]:
                    self.assertLessEqual({p["path"] for p in rank["paths"].values()}, names)

    def test_directly_by_the_network(self):
        found = self.right(2, "allreduce", "-b", "64", "-e", "1M", "-f", "128", "--memory",
                           "sim:cuda", env={"HETCCL_PATH": "direct"}, wrap=APART)  # fmt: skip
        self.assertEqual(found["meta"]["rank_table"][0]["paths"]["1"]["path"], "direct")

    def test_streams(self):
        for stream in ("native", "hetccl"):
            with self.subTest(stream=stream):
                self.right(3, "allreduce", "-b", "64", "-e", "1M", "-f", "128", "--memory",
                           "sim:cuda,host,sim:hip", "--stream", stream)  # fmt: skip

    def test_replay_takes_devices(self):
        path = os.path.join(HERE, "../../bench/workloads/resnet50.buckets.txt")
        self.right(2, "replay", path, "--memory", "sim:cuda,host")

    def test_absent_kind_is_named(self):
        kinds = json.loads(mpi.run(1, [INFO, "--devices", "--json"]).stdout)
        absent = [k["kind"] for k in kinds if "absent" in k]
        if not absent:
            self.skipTest("this machine has devices of every kind")
        self.refused(f"--memory {absent[0]}: no", 2, PERF, "allreduce", "--memory",
                     f"host,{absent[0]}")  # fmt: skip

    def test_bad_setting_of_the_simulated_devices(self):
        self.refused("HETCCL_SIM", 2, PERF, "allreduce", "--memory", "sim:cuda",
                     env={"HETCCL_SIM": "devices=none"})  # fmt: skip

    def test_errors_of_devices_are_told(self):
        chosen = ["-b", "16M", "-e", "16M", "--memory", "host,sim:cuda"]
        self.refused("16 MiB of sim:cuda memory", 2, PERF, "allreduce", *chosen,
                     env={"HETCCL_SIM": "memory=8M"})  # fmt: skip
        done = mpi.run(2, [PERF, "allreduce", *chosen], env={"HETCCL_SIM": "fail_copy=20"})
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("device lost", done.stderr)

    def test_compare_is_refused(self):
        self.refused("--compare mpi", 2, PERF, "allreduce", "--memory", "host,sim:cuda",
                     "--compare", "mpi")  # fmt: skip


class Paths(unittest.TestCase):
    def pairs(self, ranks, memory, env=None, wrap=()):
        """(from, to) to (path, reason), from the text."""
        done = mpi.run(ranks, [*wrap, INFO, "--paths", "--memory", memory], env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = {}
        for line in done.stdout.splitlines():
            columns = re.split(r"  +", line)
            if match := re.fullmatch(r"(\d+) -> (\d+)", columns[0]):
                found[int(match[1]), int(match[2])] = columns[2], columns[4]
        self.assertEqual(len(found), ranks * (ranks - 1), done.stdout)
        return found

    def test_each_pair_has_a_reason(self):
        found = self.pairs(3, "sim:cuda,host,sim:hip")
        self.assertEqual(found[1, 0], ("host", "one of the two has no device"))
        self.assertEqual(found[0, 1], ("staged", "one of the two has no device"))
        self.assertEqual(found[2, 0][0], "staged")
        self.assertIn("two vendors", found[2, 0][1])

    def test_why_memory_is_not_read_directly(self):
        for said, env in (
            ("HETCCL_PATH is staged", {"HETCCL_PATH": "staged"}),
            ("cannot show its memory", {"HETCCL_SIM": "ipc=off"}),
            ("not read back", {"HETCCL_SIM": "ipc=broken"}),
        ):
            with self.subTest(env=env):
                found = self.pairs(2, "sim:cuda", env=env)
                self.assertEqual(found[0, 1][0], "staged")
                self.assertIn(said, found[0, 1][1])

    def test_why_the_network_is_not_used(self):
        found = self.pairs(2, "sim:cuda", env={"HETCCL_SIM": "direct=off"}, wrap=APART)
        self.assertEqual(found[0, 1][0], "staged")
        self.assertIn("does not reach", found[0, 1][1])

    def test_without_mpirun(self):
        done = subprocess.run([INFO, "--paths", "--memory", "sim:hip"], capture_output=True,
                              text=True, timeout=100, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sim:hip:0", done.stdout)

    def test_json(self):
        done = mpi.run(2, [INFO, "--paths", "--json", "--memory", "sim:hip,host"])
        self.assertEqual(done.returncode, 0, done.stderr)
        table = json.loads(done.stdout)
        self.assertEqual([r["kind"] for r in table], ["sim:hip", "host"])

    def test_bad_arguments(self):
        for arguments in (["--paths", "--memory", "gpu"], ["--memory", "host"],
                          ["--paths", "--memory", "host,host,host"]):  # fmt: skip
            self.assertNotEqual(mpi.run(2, [INFO, *arguments]).returncode, 0, arguments)

    def test_devices_are_listed(self):
        kinds = json.loads(mpi.run(1, [INFO, "--devices", "--json"]).stdout)
        self.assertEqual([k["kind"] for k in kinds], ["cuda", "hip", "sim:cuda", "sim:hip"])
        for kind in kinds:
            self.assertTrue(kind.get("absent") or kind["devices"], kind)
        self.assertRegex(mpi.run(1, [INFO]).stdout, r"(?m)^sim:cuda: .*simulated")


if __name__ == "__main__":
    tap.main()
