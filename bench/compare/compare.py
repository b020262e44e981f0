#!/usr/bin/env python3
"""hetccl beside the collectives of other libraries, all alive at once and taking turns.

usage: compare.py [OPTION...]    see --help; writes compare.json, compare.md and plots

status: 0 measured, 1 wrong values or a peer lost on the way, 2 not run
"""
import argparse
import datetime
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import bounds
import peers
import plots
import report as reports
import turns

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COLLECTIVES = ["allreduce", "reducescatter", "allgather", "broadcast", "reduce", "alltoall"]
SIZES = "8,128,2K,8K,32K,128K,512K,2M,8M,32M"
LARGEST = 1 << 32


class Refused(Exception):
    """Nothing was measured; the text says why and what to do."""


def parse_size(text):
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0
    if not 4 <= size <= LARGEST:
        raise Refused(f"--sizes: '{text}' is no size; allowed: 4 to 4G, as 512 or 64K")
    return size


def chosen(option, text, known):
    names = text.split(",")
    for name in names:
        if name not in known:
            raise Refused(f"{option}: '{name}' is unknown; allowed: {', '.join(known)}")
    return list(dict.fromkeys(names))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="compare.py", description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--ranks", type=int, help="on this node [2]")
    parser.add_argument("--nodes", type=int, help="a virtual cluster of so many, one rank each, "
                        "instead of this node; needs root")
    parser.add_argument("--rates", default="1gbit", help="of the links of the nodes in turn, as "
                        "1gbit,200mbit [%(default)s]")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="directory [build]")
    parser.add_argument("--output", default="compare", help="directory for the results [compare]")
    parser.add_argument("--peers", help="[all that are there] of: " +
                        ", ".join(dict.fromkeys([*peers.NodeLauncher.peers,
                                                 *peers.ClusterLauncher.peers])))
    parser.add_argument("--collectives", default=",".join(COLLECTIVES), help="[%(default)s]")
    parser.add_argument("--sizes", default=SIZES, help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=9, help="[9]")
    parser.add_argument("--budget", type=float, default=0.02, help="seconds of a visit [0.02]")
    parser.add_argument("--base", help="the peer that ratios refer to [the first]")
    parser.add_argument("--timeout", type=float, default=60, help="seconds of a visit at most [60]")
    parser.add_argument("--plot", choices=["svg", "png", "none"], default="svg", help="[svg]")
    options = parser.parse_args(arguments)
    if options.nodes is not None and options.ranks is not None:
        raise Refused("--ranks: the nodes of a cluster have one rank each; give --nodes alone")
    options.link_rates = bounds.parse_rates(options.rates)
    if options.link_rates is None:
        raise Refused(f"--rates: '{options.rates}'; allowed are rates such as 1gbit,200mbit")
    options.ranks = options.nodes or options.ranks or 2
    for option, value, least in (("--nodes", options.nodes or 2, 2),
                                 ("--ranks", options.ranks, 2),
                                 ("--rounds", options.rounds, 1), ("--budget", options.budget, 0.0001),
                                 ("--timeout", options.timeout, 1)):
        if value < least:
            raise Refused(f"{option} {value}: at least {least}")
    options.collectives = chosen("--collectives", options.collectives, COLLECTIVES)
    if options.nodes:
        options.link_rates = [options.link_rates[i % len(options.link_rates)]
                              for i in range(options.nodes)]
    options.sizes = sorted({parse_size(text) for text in options.sizes.split(",")})
    return options


def choose_peers(options, launcher):
    """Those to be started, and why others cannot be. One that was asked for must be there."""
    names = chosen("--peers", options.peers or ",".join(launcher.peers), launcher.peers)
    if options.base and options.base not in names:
        raise Refused(f"--base: '{options.base}' is not among the peers: {', '.join(names)}")
    there, absent = [], {}
    for peer in map(launcher.peers.get, names):
        why = launcher.lacks(peer)
        if why and options.peers:
            raise Refused(f"--peers: {peer.name}: {why}")
        if why:
            absent[peer.name] = why
        else:
            there.append(peer)
    if not there:
        raise Refused(f"no driver in {launcher.drivers}; build first, or name the directory by "
                      "--build")
    return there, absent


def bus_factor(collective, ranks):
    """As nccl-tests defines the bus bandwidth."""
    if collective == "allreduce":
        return 2 * (ranks - 1) / ranks
    return 1 if collective in ("broadcast", "reduce") else (ranks - 1) / ranks


def results_of(cell, seen, base, ranks):
    """The rows of one cell."""
    collective, size = cell
    rows = []
    for name, entry in seen.items():
        if not entry["rounds_us"]:
            continue
        times = list(entry["rounds_us"].values())
        median = statistics.median(times)
        ratio = turns.ratios(entry, seen[base]) if base in seen else []
        rows.append({
            "collective": collective, "bytes": size, "moved_bytes": entry["bytes"], "peer": name,
            "ranks": ranks, "algorithm": entry["algorithm"], "batch": entry["batch"],
            "rounds": len(times), "wrong": entry["wrong"],
            "time_us": {"median": median, "min": min(entry["least_us"]), "max": max(times)},
            "busbw_gbps": entry["bytes"] * bus_factor(collective, ranks) / median / 1e3,
            "ratio": turns.summary(ratio) if ratio else None})
    return rows


def best_of(cell, seen, roles):
    """Which other library is fastest, and hetccl's and the limit's time as ratios to it."""
    others = {name: entry for name, entry in seen.items()
              if roles[name] == "peer" and entry["rounds_us"]}
    best = min(others, key=lambda name: statistics.median(others[name]["rounds_us"].values()),
               default=None)
    to_best = {}
    for name, entry in seen.items():
        values = turns.ratios(entry, others[best]) if best and name not in others else []
        if values:
            to_best[name] = turns.summary(values)
    return {"collective": cell[0], "bytes": cell[1], "best_peer": best, "to_best_peer": to_best,
            "bound_us": None}


def describe(options, launcher, there, running, absent, base):
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"],
                         capture_output=True, text=True, check=False)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": platform.node(), "machine": platform.machine(), "kernel": platform.release(),
        "commit": git.stdout.strip() or "unknown", "command": sys.argv,
        "ranks": options.ranks, "cores": peers.cores(), "rounds": options.rounds,
        "budget_s": options.budget, "base": base, "collectives": options.collectives,
        "sizes": options.sizes, "rates": options.rates if options.nodes else None,
        "cluster": launcher.name,
        "peers": {p.name: {"about": p.about, "role": p.role, "version": running.versions[p.name]}
                  for p in there if p.name in running.versions},
        "absent": {**absent, **running.absent}}


def measure(options, launcher, there, absent, scratch):
    """The report, and whether all went well."""
    running = turns.Turns(launcher, there, options.ranks, scratch, options.sizes[-1],
                          options.timeout)
    try:
        if not running.groups:
            raise Refused("no peer started: " + "; ".join(map(": ".join, running.absent.items())))
        base = options.base or next(iter(running.groups))
        results, cells = [], []
        for collective in options.collectives:
            for size in options.sizes:
                seen = running.measure((collective, size), options.rounds, options.budget)
                results += results_of((collective, size), seen, base, options.ranks)
                cells.append(best_of((collective, size), seen, {p.name: p.role for p in there}))
                if options.nodes:
                    cells[-1]["bound_us"] = bounds.least_us(collective, size, options.link_rates)
                print(f"# {collective} {reports.size_text(size)}", file=sys.stderr, flush=True)
    finally:
        running.close()
    meta = describe(options, launcher, there, running, absent, base)
    good = not running.absent and not any(row["wrong"] for row in results)
    return {"meta": meta, "results": results, "cells": cells}, good


def write(report, options):
    os.makedirs(options.output, exist_ok=True)
    for name, text in (("compare.json", json.dumps(report, indent=1)),
                       ("compare.md", reports.markdown(report))):
        with open(os.path.join(options.output, name), "w", encoding="utf-8") as file:
            file.write(text)
    if options.plot == "none":
        return
    why = plots.unavailable()
    if why:
        print(f"compare.py: {why}", file=sys.stderr)
    else:
        plots.write(report, options.output, options.plot)


def interrupted(number, _):
    sys.exit(128 + number)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    scratch = launcher = None
    try:
        options = parse(sys.argv[1:])
        launcher = (peers.ClusterLauncher(options.build, options.nodes, options.rates)
                    if options.nodes else peers.NodeLauncher(options.build))
        there, absent = choose_peers(options, launcher)
        why = launcher.open()
        if why:
            raise Refused(why)
        scratch = tempfile.mkdtemp(prefix="hetccl.compare.")
        report, good = measure(options, launcher, there, absent, scratch)
        write(report, options)
    except Refused as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    finally:
        if launcher:
            launcher.close()
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    print(reports.markdown(report), end="")
    for name, why in report["meta"]["absent"].items():
        print(f"compare.py: {name}: {why}", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
