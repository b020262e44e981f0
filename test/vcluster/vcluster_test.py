#!/usr/bin/env python3
"""hetccl across the nodes of scripts/vcluster, and that a cluster goes away whatever ends it.

usage: vcluster_test.py HETCCL_PERF
"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

VCLUSTER = os.path.join(HERE, "../../scripts/vcluster")
PERF = os.path.abspath(sys.argv[1])


def namespaces(of_process):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in listed.stdout.splitlines() if line.strip()]
    return [name for name in names if name.startswith(f"hcvc{of_process}x")]


def start(*arguments, **options):
    return subprocess.Popen(
        [VCLUSTER, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def wait_until(condition, seconds, text):
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, text)
        time.sleep(0.05)


def check_results(process, what, ranks):
    try:
        out, err = process.communicate(timeout=150)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate(timeout=30)
        raise AssertionError(f"{what}: no end after 150 s\n{out}\n{err}") from None
    expect(process.returncode == 0, f"{what}: status {process.returncode}\n{out}\n{err}")
    document = json.loads(out)
    expect(document["results"], f"{what}: no results")
    for result in document["results"]:
        expect(result["wrong"] == 0, f"{what}: wrong values in {result}")
        expect(result["ranks"] == ranks, f"{what}: ranks in {result}")
    expect(not namespaces(process.pid), f"{what}: namespaces are left")
    return document


def measure(collective, nodes, rates, per_node):
    return start(
        *["run", "-k", str(nodes), "-r", rates, "-p", str(per_node), "--", PERF, collective],
        *["-b", "8", "-e", "256k", "-f", "32", "-n", "3", "-w", "1", "--format", "json"],
    )


class VirtualCluster(unittest.TestCase):
    def test_collectives(self):
        for collective in ("allreduce", "alltoall", "broadcast"):
            document = check_results(measure(collective, 4, "1gbit", 1), collective, 4)
            nodes = {rank["node"] for rank in document["meta"]["rank_table"]}
            expect(len(nodes) == 4, f"{collective}: ranks saw these nodes: {nodes}")

    def test_two_clusters_side_by_side(self):
        first = measure("allreduce", 2, "500mbit,1gbit", 2)
        second = measure("allgather", 3, "1gbit", 1)
        check_results(first, "first of two", 4)
        check_results(second, "second of two", 3)

    def test_exit_status_is_the_program_s(self):
        process = start("run", "-k", "2", "--", "false")
        process.communicate(timeout=60)
        expect(process.returncode == 1, f"status of a failing program: {process.returncode}")

    def test_interrupted(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process = start("run", "-k", "3", "--", "sleep", "120", start_new_session=True)
            wait_until(lambda: len(namespaces(process.pid)) == 4, 20, "no cluster came up")
            time.sleep(0.5)
            process.send_signal(number)
            process.communicate(timeout=30)
            expect(process.returncode == 128 + number, f"status {process.returncode}")
            expect(not namespaces(process.pid), f"namespaces are left after signal {number}")

    def test_down_removes_what_a_killed_run_left(self):
        process = start("run", "-k", "2", "--", "sleep", "120", start_new_session=True)
        wait_until(lambda: len(namespaces(process.pid)) == 3, 20, "no cluster came up")
        time.sleep(0.5)
        process.kill()
        process.wait(timeout=10)
        left = namespaces(process.pid)
        expect(len(left) == 3, f"a killed run cannot clean up, but {left} is what is left")
        name = left[0].rsplit("-", 1)[0]
        subprocess.run([VCLUSTER, "down", name], check=True, timeout=60)
        expect(not namespaces(process.pid), "down left namespaces")
        process.communicate(timeout=10)

    def test_up_exec_stats_down(self):
        name = subprocess.run(
            [VCLUSTER, "up", "-k", "2"], capture_output=True, text=True, check=True
        ).stdout.strip()
        try:
            send = ["bash", "-c", "exec 3<>/dev/udp/10.77.0.2/9; echo x >&3"]
            subprocess.run([VCLUSTER, "exec", name, "0", *send], check=True, timeout=30)
            stats = subprocess.run(
                [VCLUSTER, "stats", name], capture_output=True, text=True, check=True
            )
            expect(len(stats.stdout.splitlines()) == 2, f"stats: {stats.stdout}")
            route = ["ip", "route", "get", "192.0.2.1"]
            outside = subprocess.run([VCLUSTER, "exec", name, "0", *route], capture_output=True)
            expect(outside.returncode != 0, "a node has a way out")
        finally:
            subprocess.run([VCLUSTER, "down", name], check=True, timeout=60)
        refused = subprocess.run([VCLUSTER, "down", "hcvc0x0"], capture_output=True)
        expect(refused.returncode == 2, "an unknown name was accepted")

    def test_not_root_is_a_skip(self):
        def drop():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

        process = start("run", "-k", "2", "--", "true", preexec_fn=drop, cwd="/")
        _, err = process.communicate(timeout=30)
        expect(process.returncode == 77 and "root" in err, f"{process.returncode} {err}")


def reason_to_skip():
    probe = subprocess.run(
        [VCLUSTER, "run", "-k", "1", "--", "true"], capture_output=True, text=True, check=False
    )
    return probe.stderr.strip() if probe.returncode == 77 else None


if __name__ == "__main__":
    # A job in the background inherits these as ignored, and no shell can trap them then.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    tap.main(skip=reason_to_skip())
