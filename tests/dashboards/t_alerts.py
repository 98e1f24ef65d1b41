#!/usr/bin/env python3
"""t_alerts.py - checks the rules for Prometheus: promtool accepts them, each alert has a unit test that fires and one
that stays silent, and each has a runbook whose queries are PromQL of metrics that exist."""

import re
import subprocess
import unittest

import checks
import generate
import panels as table

TESTS = sorted((checks.ROOT / "tests" / "dashboards" / "rules").glob("*.yaml"))
SEVERITIES = {"critical", "warning", "info"}
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def promtool(*arguments):
    done = subprocess.run([checks.PROMTOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def alerts():
    return [r for r in checks.rule_groups() if "alert" in r]


def load(path):
    import yaml
    return yaml.safe_load(path.read_text())


class Rules(unittest.TestCase):
    def test_promtool_accepts_them(self):
        status, said = promtool("check", "rules", *checks.RULES)
        self.assertEqual(status, 0, said)

    def test_promtool_runs_the_unit_tests(self):
        for path in TESTS:
            status, said = promtool("test", "rules", path)
            self.assertEqual(status, 0, said)

    def test_each_alert_is_tested_both_ways(self):
        fires, silent, expected = set(), set(), []
        for path in TESTS:
            for case in load(path)["tests"]:
                for one in case.get("alert_rule_test", []):
                    (fires if one["exp_alerts"] else silent).add(one["alertname"])
                    expected += [(one["alertname"], e["exp_labels"]) for e in one["exp_alerts"]]
        names = {a["alert"] for a in alerts()}
        self.assertEqual(names - fires, set(), "no test makes these fire")
        self.assertEqual(names - silent, set(), "no test keeps these silent")
        self.assertEqual((fires | silent) - names, set(), "tests of alerts that do not exist")
        for alert in alerts():
            own = alert["labels"].items()
            self.assertTrue(any(n == alert["alert"] and own <= labels.items() for n, labels in expected),
                            f"{alert['alert']} {alert['labels']}: no test makes this one of them fire")

    def test_each_expected_alert_has_all_its_texts(self):
        for path in TESTS:
            for case in load(path)["tests"]:
                for one in case.get("alert_rule_test", []):
                    for alert in one["exp_alerts"]:
                        self.assertEqual(set(alert["exp_annotations"]), {"summary", "description", "runbook_url"})

    def test_labels_and_annotations(self):
        for alert in alerts():
            name, notes = alert["alert"], alert["annotations"]
            self.assertRegex(name, r"^Muster[A-Z]\w+$")
            self.assertIn(alert["labels"]["severity"], SEVERITIES, name)
            self.assertIn("for", alert, f"{name}: a single evaluation must not page anybody")
            self.assertEqual(notes["runbook_url"], f"{generate.RUNBOOKS}/{name}.md")
            self.assertIn("$labels.", notes["summary"] + notes["description"], name)
            if not re.search(r"== [01]\b", alert["expr"]):  # whose value says nothing
                self.assertRegex(notes["summary"] + notes["description"], r"\$value", name)
            self.assertLess(len(notes["summary"]), 140, name)

    def test_what_differs_between_alerts_of_one_name(self):
        seen = set()
        for alert in alerts():
            key = (alert["alert"], tuple(sorted(alert["labels"].items())))
            self.assertNotIn(key, seen)
            seen.add(key)

    def test_metrics_exist_and_records_are_used(self):
        types = checks.exported()
        records = {r["record"] for r in checks.rule_groups() if "record" in r}
        known = set(types) | records | set(table.FOREIGN["Prometheus"])
        used = set()
        for rule in checks.rule_groups():
            for metric, _, _ in checks.selectors(rule["expr"]):
                self.assertTrue(checks.base(metric, types) in known, f"{rule}: {metric}")
                used.add(metric)
        for dashboard in checks.models().values():
            used |= set(re.findall(r"\b(?:service|pool):muster_\w+:\w+", str(dashboard)))
        # Goodput is a name for people and for autoscalers outside.
        self.assertEqual(records - used - {"service:muster_goodput:rate5m"}, set(), "recorded and not used")

    def test_sentences_that_alerts_look_for_are_said(self):
        """Reasons are labels: a sentence that the code no longer says would silence an alert for ever."""
        code = "".join(p.read_text() for folder in ("controller/core", "policies/scale", "router/core", "base/io/auth")
                       for p in (checks.ROOT / folder).rglob("*.c"))
        found = 0
        for rule in checks.rule_groups():
            for text in re.findall(r'\b(?:by|reason|verdict|class)=~?"([^"]+)"', rule["expr"]):
                for one in text.split("|"):
                    found += 1
                    self.assertIn(one.replace(".*", ""), code, rule.get("alert"))
        self.assertGreater(found, 8)

    def test_rates_are_of_counters(self):
        types = checks.exported()
        for rule in checks.rule_groups():
            for metric, span, functions in checks.selectors(rule["expr"]):
                base = checks.base(metric, types)
                if base not in types or "group" in functions: # its presence, not its value
                    continue
                counts = types[base] in ("counter", "histogram")
                self.assertEqual(counts, bool({"rate", "increase"} & set(functions)), f"{rule}: {metric}")
                if span and not counts:
                    self.assertIn(functions[0], {"last_over_time", "delta"}, f"{rule}: {metric}")


class Runbooks(unittest.TestCase):
    def test_one_for_each_alert(self):
        pages = {p.stem for p in checks.RUNBOOKS.glob("*.md")} - {"README"}
        self.assertEqual(pages, {a["alert"] for a in alerts()})

    def test_sections_commands_and_queries(self):
        metrics = set(checks.exported()) | {n for names in table.FOREIGN.values() for n in names}
        metrics |= {r["record"] for r in checks.rule_groups() if "record" in r}
        found = []
        for path in sorted(checks.RUNBOOKS.glob("Muster*.md")):
            page = path.read_text()
            self.assertEqual(page.splitlines()[0], f"# {path.stem}")
            self.assertEqual(re.findall(r"^## (.*)$", page, re.M), SECTIONS, path.name)
            diagnosis = page.split("## Diagnosis")[1].split("## Mitigation")[0]
            self.assertRegex(diagnosis, r"(?m)^muster [a-z]+", f"{path.name}: no command")
            found += [(path.name, q.strip()) for q in re.findall(r"```promql\n(.*?)```", page, re.S)]
            self.assertIn(path.name, {name for name, _ in found}, "no query")
        types = checks.exported()
        for name, query in found:
            for metric, _, _ in checks.selectors(query):
                self.assertTrue(checks.base(metric, types) in metrics or metric == "__name__", f"{name}: {metric}")
        self.assertEqual(checks.check_expressions([q for _, q in found]), "")

    def test_the_index_lists_them(self):
        index = (checks.RUNBOOKS / "README.md").read_text()
        for alert in alerts():
            self.assertIn(f"[{alert['alert']}]({alert['alert']}.md)", index)


if __name__ == "__main__":
    checks.run("__main__", [("promtool", checks.PROMTOOL), ("the Python package yaml", checks.has("yaml"))])
