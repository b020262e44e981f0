"""The least time that a collective can take between nodes whose links have given rates, each full duplex
and joined by a switch that is never the bottleneck."""
import re

# What of a link's rate is payload: 1448 of 1514 bytes of a TCP segment.
PAYLOAD = 1448 / 1514
UNITS = {"bit": 1 / 8, "bps": 1}
PREFIXES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def parse_rates(text):
    """Bytes a second, of a list as tc takes it; None where it is none."""
    rates = []
    for item in text.lower().split(","):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(bit|bps)", item)
        if not found or float(found[1]) == 0:
            return None
        rates.append(float(found[1]) * PREFIXES[found[2]] * UNITS[found[3]])
    return rates


def least_us(collective, size, rates):
    """`size`: bytes of the larger buffer of a rank, one rank a node. For all-reduce what every rank
    must send and receive at least, together and at the slowest link; for the others what each link
    must carry in one direction."""
    nodes, slowest = len(rates), min(rates)
    if collective == "allreduce":
        seconds = max(2 * (nodes - 1) * size / sum(rates), size / slowest)
    elif collective in ("broadcast", "reduce"):
        seconds = size / slowest
    else:
        seconds = (nodes - 1) / nodes * size / slowest
    return 1e6 * seconds / PAYLOAD
