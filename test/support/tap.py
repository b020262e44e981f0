"""Runs the unittest cases of the calling script and reports them in the Test Anything Protocol, so
that the build system counts and names each of them."""
import sys
import unittest


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


def say(line):
    print(line, flush=True)


def main(skip=None):
    """Runs all cases of __main__ and leaves the process. `skip`: why nothing can run here."""
    if skip:
        say(f"1..0 # SKIP {skip}")
        sys.exit(0)
    cases = list(flat(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    say(f"1..{len(cases)}")
    failed = 0
    for number, case in enumerate(cases, 1):
        result = unittest.TestResult()
        case.run(result)
        name = case.id().removeprefix("__main__.")
        trouble = result.failures + result.errors
        if trouble:
            failed += 1
            for _, text in trouble:
                say("\n".join("# " + line for line in text.splitlines()))
            say(f"not ok {number} - {name}")
        elif result.skipped:
            say(f"ok {number} - {name} # SKIP {result.skipped[0][1]}")
        else:
            say(f"ok {number} - {name}")
    sys.exit(1 if failed or not cases else 0)
