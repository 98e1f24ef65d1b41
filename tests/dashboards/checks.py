"""checks.py - what the tests of the dashboards share: where things lie, exported metrics, the parts of queries."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "dashboards"
RULES = sorted((DASHBOARDS / "rules").glob("*.yaml"))
RUNBOOKS = ROOT / "docs" / "runbooks"
sys.dont_write_bytecode = True
sys.path.insert(0, str(DASHBOARDS))

SKIPPED = 77
PROMTOOL = shutil.which("promtool")


def models():
    """The dashboards by uid."""
    return {p.stem: json.loads(p.read_text()) for p in sorted(DASHBOARDS.glob("*.json"))}


def exported():
    """Metrics of `muster docs metrics` and their types, from the checked-in page."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.M))


def rule_groups():
    """The rules of all files, in order."""
    import yaml
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def without_strings(expression):
    return re.sub(r'"[^"]*"', '""', expression)


def selectors(expression):
    """[(metric, range or None, the functions around it)], innermost function first."""
    plain = without_strings(expression)
    found, stack = [], []
    token = re.compile(r"(?<![$\w])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?\s*(\[[^\]]*\])?|([()])")
    grouping = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
    plain = grouping.sub(" ", plain)
    words = {"by", "and", "or", "unless", "bool", "offset", "inf", "nan", "group_left", "group_right", "on", "ignoring"}
    name = None
    for match in token.finditer(plain):
        word, braces, span, paren = match.groups()
        if paren == "(":
            stack.append(name)
            name = None
        elif paren == ")":
            if stack:
                stack.pop()
            name = None
        elif plain[match.end():].lstrip().startswith("(") and not braces and not span:
            name = word
        elif word.lower() not in words and not re.fullmatch(r"[smhdwy]|e\d*", word):
            found.append((word, span[1:-1] if span else None, [s for s in reversed(stack) if s]))
            name = None
    return found


def base(metric, types):
    """A histogram's name without its ending."""
    for ending in ("_bucket", "_sum", "_count"):
        if metric.endswith(ending) and types.get(metric[:-len(ending)]) == "histogram":
            return metric[:-len(ending)]
    return metric


def check_expressions(expressions):
    """What promtool says against these; each must be an expression of PromQL."""
    lines = ["groups:", "  - name: parsed", "    rules:"]
    for at, expression in enumerate(expressions):
        lines += [f"      - record: parsed:number_{at}", f"        expr: {json.dumps(expression)}"]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        done = subprocess.run([PROMTOOL, "check", "rules", file.name], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def shared(path):
    """A file of the shared test data (MUSTER_SHARED, or ../shared beside the checkout), or None."""
    found = pathlib.Path(os.environ.get("MUSTER_SHARED", ROOT.parent / "shared")) / path
    return found if found.exists() else None


def run(module, needs=()):
    """Runs a module's tests; exits 77 when a program or package that they need is missing."""
    for what, there in needs:
        if not there:
            print(f"skipped: {what} is not installed")
            sys.exit(SKIPPED)
    result = unittest.main(module=module, exit=False, verbosity=1).result
    for _, why in result.skipped:
        print(f"skipped: {why}")
    sys.exit(0 if result.wasSuccessful() else 1)


def has(package):
    try:
        __import__(package)
    except ImportError:
        return False
    return True
