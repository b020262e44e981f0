"""Results as a Markdown table, and sizes as people write them."""


def size_text(size):
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {letter}"
    return str(size)


def time_text(us):
    return f"{us:.3g}" if us < 1000 else f"{us:.0f}"


def _cell(entry):
    if entry is None:
        return "-"
    wrong = " WRONG" if entry["wrong"] else ""
    ratio = entry["ratio"]
    if ratio is None:
        return time_text(entry["time_us"]["median"]) + " us" + wrong
    return f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f}){wrong}"


def _best(cell):
    if cell is None or not cell["best_peer"]:
        return "-"
    return ", ".join([cell["best_peer"], *(f"{name} {ratio['median']:.2f}"
                                           for name, ratio in cell["to_best_peer"].items())])


def _bound(cell, of_base):
    """As a ratio like all others, so that the distance from it is seen."""
    if of_base is None:
        return time_text(cell["bound_us"]) + " us"
    return f"{cell['bound_us'] / of_base['time_us']['median']:.2f}"


def title(meta):
    if meta["rates"]:
        return f"{meta['ranks']} nodes, links of {meta['rates']}"
    return f"{meta['ranks']} ranks on {meta['cores']} cores"


def markdown(report):
    meta, lines = report["meta"], []
    peers = list(meta["peers"])
    entries = {(r["collective"], r["bytes"], r["peer"]): r for r in report["results"]}
    cells = {(c["collective"], c["bytes"]): c for c in report["cells"]}
    lines += [f"# {title(meta)}", "",
              f"float32, sum. Time as a ratio to `{meta['base']}` in the same round: median over "
              f"{meta['rounds']} rounds (quartiles). Best peer: the fastest other library in that "
              "cell, and the time as a ratio to it." +
              (" Bound: the least possible time at the links' payload rate, computed, as a ratio to "
               "the base's." if meta["rates"] else ""), ""]
    for collective in meta["collectives"]:
        lines += [f"## {collective}", "",
                  "| bytes | " + " | ".join(peers) + f" | {meta['base']} us | best peer |" + (" bound |" if meta["rates"] else ""),
                  "|---" * (len(peers) + (4 if meta["rates"] else 3)) + "|"]
        for size in meta["sizes"]:
            of_base = entries.get((collective, size, meta["base"]))
            row = [size_text(size), *(_cell(entries.get((collective, size, p))) for p in peers),
                   time_text(of_base["time_us"]["median"]) if of_base else "-",
                   _best(cells.get((collective, size)))]
            if meta["rates"]:
                row.append(_bound(cells[(collective, size)], of_base))
            lines.append("| " + " | ".join(row) + " |")
        lines.append("")
    lines += ["| peer | what | version |", "|---|---|---|"]
    lines += [f"| {name} | {p['about']} | {p['version']} |" for name, p in meta["peers"].items()]
    lines += [f"| {name} | absent | {why} |" for name, why in meta["absent"].items()]
    return "\n".join(lines) + "\n"
