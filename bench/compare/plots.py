"""Plots, one file a collective: size against time, and against bus bandwidth."""
import os

from report import title


def unavailable():
    """Why there can be no plots, or ""."""
    try:
        import matplotlib  # pylint: disable=unused-import,import-outside-toplevel
    except ImportError as error:
        return f"no plots: {error}; on Debian: apt-get install python3-matplotlib"
    return ""


# Those of the library are kept for it.
COLOURS = ["tab:blue", "tab:green", "tab:purple", "tab:brown", "tab:pink", "tab:gray", "tab:olive",
           "tab:cyan"]


def _style(role, name, number):
    if role == "limit":
        return {"color": "black", "linestyle": ":", "linewidth": 1.5}
    if role == "hetccl":
        return {"linewidth": 2.5, "marker": "o", "markersize": 4,
                "color": "tab:red" if name == "hetccl" else "tab:orange"}
    return {"linewidth": 1, "marker": ".", "color": COLOURS[number % len(COLOURS)]}


def _time(row, role):
    """A limit is the least that was ever seen."""
    return row["time_us"]["min" if role == "limit" else "median"]


def _bandwidth(row, role):
    return row["busbw_gbps"] * row["time_us"]["median"] / _time(row, role)


def _draw(axes, report, collective, value):
    for number, (name, peer) in enumerate(report["meta"]["peers"].items()):
        points = sorted((r["bytes"], value(r, peer["role"])) for r in report["results"]
                        if (r["collective"], r["peer"]) == (collective, name))
        points = [(size, y) for size, y in points if y > 0]
        if points:
            axes.plot(*zip(*points), label=name, **_style(peer["role"], name, number))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes")
    axes.grid(True, which="major", alpha=0.3)


def _draw_bound(axes, report, collective):
    """What links allow is computed, not measured, so it is drawn against time only."""
    points = [(c["bytes"], c["bound_us"]) for c in report["cells"]
              if c["collective"] == collective and c["bound_us"]]
    if points:
        axes.plot(*zip(*sorted(points)), label="bound", **_style("limit", "", 0))


def write(report, directory, extension):
    """The paths of the files."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    meta, paths = report["meta"], []
    for collective in meta["collectives"]:
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5))
        _draw(left, report, collective, _time)
        _draw(right, report, collective, _bandwidth)
        _draw_bound(left, report, collective)
        left.set_ylabel("time, us")
        right.set_ylabel("bus bandwidth, GB/s")
        left.legend(fontsize="small")
        figure.suptitle(f"{collective}, {title(meta)}, medians over rounds in which all took turns")
        figure.tight_layout()
        paths.append(os.path.join(directory, f"{collective}.{extension}"))
        figure.savefig(paths[-1])
        pyplot.close(figure)
    return paths
