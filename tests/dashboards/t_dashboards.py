#!/usr/bin/env python3
"""t_dashboards.py - checks the dashboards as files: fresh, valid, linted, and of metrics that exist.

The rules of the lint are those of Grafana's dashboard-linter where they apply, and some of our own; .lint beside
the dashboards lists its rules that do not apply, with the reasons, for people who run the original.
"""

import collections
import re
import unittest

import checks
import generate
import panels as table
import queries

COUNTERS = {"rate", "irate", "increase"}
KNOWN_UNITS = {"none", "short", "percent", "percentunit", "s", "bytes", "Bps", "reqps", "cps", "currencyUSD", "watt",
               "celsius", "hertz"}


def each_panel():
    for uid, model in checks.models().items():
        for panel in queries.panels(model):
            yield uid, panel


def each_query():
    for uid, panel in each_panel():
        for target in panel["targets"]:
            yield f"{uid}: {panel['title']}", target["expr"]


class Fresh(unittest.TestCase):
    def test_the_files_are_what_the_table_says(self):
        self.assertEqual(generate.stale(), [], "run dashboards/generate.py")

    def test_links_can_go_elsewhere(self):
        import tempfile
        import pathlib
        with tempfile.TemporaryDirectory() as folder:
            generate.write(pathlib.Path(folder), "https://wiki.example/muster")
            made = sorted(pathlib.Path(folder).rglob("*.*"))
            self.assertEqual(len(made), len(table.DASHBOARDS) + len(checks.RULES))
            for path in made:
                self.assertNotIn(generate.RUNBOOKS, path.read_text(), path)
            self.assertIn("https://wiki.example/muster/MusterStockOut.md", "".join(p.read_text() for p in made))


class Schema(unittest.TestCase):
    def test_grafanas_schema(self):
        """The schema that Grafana publishes. Of two members it only says `object` where any value is meant: the
        options of a matcher (a string for byName and byRegexp) and the value of an override."""
        path = checks.shared("data/grafana/dashboard.jsonschema.json")
        if not path or not checks.has("jsonschema"):
            self.skipTest("Grafana's JSON schema (set MUSTER_SHARED) or python3-jsonschema is not here")
        import json
        import jsonschema
        schema = json.loads(path.read_text())
        schema["definitions"]["MatcherConfig"]["properties"]["options"] = {}
        schema["definitions"]["DynamicConfigValue"]["properties"]["value"] = {}
        validator = jsonschema.Draft7Validator(schema)
        for uid, model in checks.models().items():
            wrong = [f"{list(e.absolute_path)}: {e.message[:200]}" for e in validator.iter_errors(model)]
            self.assertEqual(wrong, [], uid)
        broken = dict(next(iter(checks.models().values())), schemaVersion="39")
        self.assertTrue(list(validator.iter_errors(broken)), "the schema takes anything")

    def test_units_that_grafana_knows(self):
        path = checks.shared("data/grafana/units.jsonschema.json")
        known = KNOWN_UNITS
        if path:
            import json
            known = {d["const"] for d in json.loads(path.read_text())["definitions"].values()}
            self.assertLessEqual(KNOWN_UNITS, known)
        for uid, panel in each_panel():
            unit = panel["fieldConfig"]["defaults"]["unit"]
            self.assertTrue(unit in known or unit.startswith("suffix: "), f"{uid}: {panel['title']}: {unit}")

    def test_the_shape(self):
        """The essential part of the schema, where Grafana's is not at hand."""
        for uid, model in checks.models().items():
            self.assertEqual(model["uid"], uid)
            self.assertLessEqual(len(uid), 40)
            self.assertGreaterEqual(model["schemaVersion"], 39)
            self.assertEqual(model["timezone"], "browser")
            self.assertIs(model["editable"], False)
            self.assertIn("muster", model["tags"])
            self.assertNotIn("__inputs", model)
            self.assertNotIn("id", model)
            ids = [p["id"] for p in queries.panels(model)] + [p["id"] for p in model["panels"] if p["type"] == "row"]
            self.assertEqual(len(ids), len(set(ids)), uid)
            for panel in queries.panels(model):
                for member, kind in (("gridPos", dict), ("fieldConfig", dict), ("options", dict), ("targets", list)):
                    self.assertIsInstance(panel[member], kind)
                steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                self.assertIsNone(steps[0]["value"], panel["title"])
                values = [s["value"] for s in steps[1:]]
                self.assertEqual(values, sorted(set(values)), panel["title"])

    def test_panels_do_not_overlap(self):
        for uid, model in checks.models().items():
            groups = [[p for p in model["panels"]]] + [p["panels"] for p in model["panels"] if p["type"] == "row"]
            for group in groups:
                taken = collections.Counter()
                for panel in group:
                    at = panel["gridPos"]
                    self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
                    columns, lines = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
                    taken.update((x, y) for x in columns for y in lines)
                self.assertTrue(all(n == 1 for n in taken.values()), uid)


class Lint(unittest.TestCase):
    def test_the_data_source_is_a_variable(self):
        for uid, model in checks.models().items():
            sources = [v for v in model["templating"]["list"] if v["type"] == "datasource"]
            self.assertEqual([(v["name"], v["query"]) for v in sources], [("datasource", "prometheus")], uid)
            wanted = {"type": "prometheus", "uid": "${datasource}"}
            for panel in queries.panels(model):
                self.assertEqual(panel["datasource"], wanted, panel["title"])
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"], wanted, panel["title"])
            for variable in model["templating"]["list"]:
                if variable["type"] == "query":
                    self.assertEqual(variable["datasource"], wanted, variable["name"])
            for annotation in model["annotations"]["list"]:
                self.assertEqual(annotation["datasource"], wanted)

    def test_variables(self):
        types = checks.exported()
        for uid, model in checks.models().items():
            used = " ".join(t["expr"] for p in queries.panels(model) for t in p["targets"])
            used += " ".join(v["query"] for v in model["templating"]["list"] if v["type"] == "query")
            for variable in model["templating"]["list"]:
                self.assertTrue(variable["label"], uid)
                if variable["type"] == "datasource":
                    continue
                self.assertRegex(used, r"\$" + variable["name"] + r"\b", f"{uid}: ${variable['name']} is not used")
                if variable["type"] != "query":
                    continue
                self.assertEqual(variable["refresh"], 2, "values follow the time range")
                self.assertTrue(variable["multi"] and variable["includeAll"])
                self.assertEqual(variable["allValue"], ".*", "series without the label match too")
                metric = re.match(r"label_values\(([a-z_]+)", variable["query"])
                self.assertIn(checks.base(metric.group(1), types), types, "values of one metric, not of every label")

    def test_every_panel_says_what_it_answers(self):
        for uid, model in checks.models().items():
            titles = [p["title"] for p in queries.panels(model)]
            self.assertEqual([t for t, n in collections.Counter(titles).items() if n > 1], [], uid)
        for uid, panel in each_panel():
            where = f"{uid}: {panel['title']}"
            self.assertTrue(panel["title"] and panel["title"][0].isupper() and not panel["title"].endswith("."), where)
            self.assertIn("?", panel["description"], f"{where}: the description is the question that it answers")
            self.assertTrue(panel["targets"], where)
            names = [t["legendFormat"] for t in panel["targets"]]
            self.assertEqual(len(names), len(set(names)), f"{where}: two queries have one name")

    def test_every_query_is_promql(self):
        if not checks.PROMTOOL:
            self.skipTest("promtool is not installed")
        filled = []
        for model in checks.models().values():
            values = queries.variables(model)
            filled += [queries.fill(t["expr"], values) for p in queries.panels(model) for t in p["targets"]]
            filled += [queries.fill(a["expr"], values) for a in model["annotations"]["list"]]
        self.assertGreater(len(filled), 200)
        self.assertEqual(checks.check_expressions(filled), "")
        self.assertNotEqual(checks.check_expressions(["sum by (x (rate(y[5m]))"]), "", "promtool takes anything")

    def test_rates_are_of_counters_and_counters_have_rates(self):
        types = checks.exported()
        for where, expression in each_query():
            for metric, span, functions in checks.selectors(expression):
                base = checks.base(metric, types)
                if base not in types:
                    continue # a recorded or a foreign series
                counts = types[base] == "counter" or types[base] == "histogram"
                in_rate = bool(COUNTERS & set(functions))
                self.assertEqual(counts, in_rate, f"{where}: {metric} is a {types[base]}, in {functions}")
                if span:
                    self.assertIn(functions[0], COUNTERS | {"delta"}, f"{where}: {metric}")

    def test_ranges_follow_the_scrape_interval(self):
        for where, expression in each_query():
            for metric, span, functions in checks.selectors(expression):
                if span is None:
                    continue
                allowed = {"$__rate_interval"}
                if functions[0] == "increase":
                    allowed |= {"$__range", "1h"} # events that are few
                self.assertIn(span, allowed, f"{where}: {metric}")

    def test_sums_before_quantiles(self):
        for where, expression in each_query():
            for call in re.findall(r"histogram_quantile\(([^)]*\))", expression):
                self.assertRegex(call, r"sum by \(le\b", where)
            self.assertNotRegex(expression, r"(avg|sum|max|min)( by \([^)]*\))? \(histogram_quantile",
                                f"{where}: quantiles of several cannot be added")

    def test_counters_are_aggregated(self):
        for where, expression in each_query():
            for metric, span, functions in checks.selectors(expression):
                if span and functions[0] in COUNTERS:
                    self.assertTrue({"sum", "max", "min", "avg"} & set(functions), f"{where}: {metric}")

    def test_shares_are_ratios(self):
        """A panel in percent has a division or a metric that is a ratio: nothing else is between 0 and 1."""
        for uid, panel in each_panel():
            if panel["fieldConfig"]["defaults"]["unit"] != "percentunit":
                continue
            for target in panel["targets"]:
                ratio = re.search(r" / |ratio|_usage_perc|hit_rate|token_usage|burn|throttled_seconds", target["expr"])
                self.assertTrue(ratio, f"{uid}: {panel['title']}: {target['expr']}")

    def test_metrics_exist(self):
        known = set(checks.exported())
        known |= {r["record"] for r in checks.rule_groups() if "record" in r}
        known |= {name for names in table.FOREIGN.values() for name in names}
        types = checks.exported()
        used = set()
        for where, expression in each_query():
            for metric, _, _ in checks.selectors(expression):
                name = checks.base(metric, types)
                name = re.sub(r"_bucket$", "", name) if name not in known else name
                self.assertTrue(name in known, f"{where}: there is no metric {metric}")
                used.add(name)
        for program, names in table.FOREIGN.items():
            self.assertEqual([n for n in names if n not in used], [], f"{program}: listed and not used")

    def test_runbooks_exist(self):
        alerts = {r["alert"] for r in checks.rule_groups() if "alert" in r}
        for uid, panel in each_panel():
            for link in panel.get("links", []):
                name = re.fullmatch(re.escape(generate.RUNBOOKS) + r"/(\w+)\.md", link["url"]).group(1)
                self.assertIn(name, alerts, f"{uid}: {panel['title']}")
                self.assertTrue((checks.RUNBOOKS / (name + ".md")).exists(), name)

    def test_an_empty_panel_says_why(self):
        for dashboard in table.DASHBOARDS:
            for row in dashboard.rows:
                for panel in row.panels:
                    self.assertTrue(panel.quiet is None or len(panel.quiet) > 10, panel.title)


if __name__ == "__main__":
    checks.run("__main__", [("the Python package yaml", checks.has("yaml"))])
