#!/usr/bin/env python3
"""generate.py - makes the dashboards' JSON for Grafana from panels.py and the boards that it lists.

    dashboards/generate.py                     write dashboards/*.json
    dashboards/generate.py --check             say which of them are stale; exit 1 if one is
    dashboards/generate.py --runbooks URL --out FOLDER
                                               write dashboards and rules whose links go to URL

The model is the classic one of schema version 39, which newer Grafanas migrate when they load it.
"""

import argparse
import json
import pathlib
import sys

import kinds
import panels

HERE = pathlib.Path(__file__).resolve().parent
RUNBOOKS = "https://muster.example/docs/runbooks"
SCHEMA_VERSION = 39
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Lines that are no measurement but a bound or an expectation are dashed.
DASHED = "/(SLO|objective|budget|target|forecast|expected)$/"
# Names whose colour says something, wherever they stand.
COLOURS = {"ok": kinds.GOOD, "met": kinds.GOOD, "ready": kinds.GOOD, "fresh": kinds.GOOD, "stop": kinds.GOOD,
           "missed": kinds.BAD, "failed": kinds.BAD, "broken": kinds.BAD, "error": kinds.BAD, "stale": kinds.BAD,
           "refused": kinds.WARN, "starting": "yellow", "draining": "purple", "ending": "grey", "client_left": "grey",
           "silent": kinds.BAD, "held": kinds.WARN}
COLUMNS = 24
ROW_HEIGHT = 1


def link(title, url):
    return {"title": title, "type": "link", "url": url, "icon": "doc", "tooltip": "What it means and what to do",
            "tags": [], "asDropdown": False, "targetBlank": True, "includeVars": False, "keepTime": False}


def thresholds(panel):
    steps = panel.steps or [(None, kinds.GOOD)]
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in steps]}


def defaults(panel):
    field = {"unit": panel.unit, "color": {"mode": "palette-classic"}, "thresholds": thresholds(panel), "mappings": []}
    if panel.kind in ("stat", "bars"):
        field["color"] = {"mode": "thresholds"}
    if panel.low is not None:
        field["min"] = panel.low
    if panel.high is not None:
        field["max"] = panel.high
    if panel.decimals is not None:
        field["decimals"] = panel.decimals
    if panel.quiet:
        field["noValue"] = "no data: " + panel.quiet
    if panel.kind == "timeseries":
        field["custom"] = {
            "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 30 if panel.stack else 8,
            "gradientMode": "none", "showPoints": "never", "spanNulls": False, "axisPlacement": "auto",
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.steps else "off"},
            "scaleDistribution": {"type": "log", "log": 10} if panel.log else {"type": "linear"}}
    if panel.kind == "states":
        field["color"] = {"mode": "thresholds"}
        field["custom"] = {"fillOpacity": 70, "lineWidth": 0}
        field["mappings"] = [{"type": "value", "options": {
            "0": {"text": "no", "color": "transparent", "index": 0},
            "1": {"text": "yes", "color": kinds.PLAIN, "index": 1}}}]
    return field


def overrides(panel):
    if panel.kind != "timeseries":
        return []
    made = [{"matcher": {"id": "byRegexp", "options": DASHED},
             "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                            {"id": "custom.fillOpacity", "value": 0},
                            {"id": "custom.stacking", "value": {"mode": "none", "group": "A"}}]}]
    telling = ("{{outcome}}", "{{result}}", "{{phase}}", "{{state}}", "{{reason}}")
    if any(legend in telling for _, legend in panel.queries):
        made += [{"matcher": {"id": "byName", "options": name},
                  "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
                 for name, colour in COLOURS.items()]
    return made


LATEST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
OPTIONS = {
    "timeseries": ("timeseries", {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True,
                                             "calcs": []}, "tooltip": {"mode": "multi", "sort": "desc"}}),
    "stat": ("stat", {"reduceOptions": LATEST, "colorMode": "value", "graphMode": "area", "justifyMode": "auto",
                      "orientation": "auto", "textMode": "value"}),
    "bars": ("bargauge", {"reduceOptions": LATEST, "displayMode": "basic", "orientation": "horizontal",
                          "showUnfilled": True, "valueMode": "color"}),
    "table": ("table", {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"],
                                                                             "countRows": False, "fields": ""}}),
    "states": ("state-timeline", {"mergeValues": True, "showValue": "never", "rowHeight": 0.8, "alignValue": "left",
                                  "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
                                  "tooltip": {"mode": "single", "sort": "none"}}),
}


def target(panel, at, query):
    expression, legend = query
    instant = panel.kind in ("table", "bars")
    made = {"datasource": SOURCE, "editorMode": "code", "expr": expression, "legendFormat": legend,
            "refId": chr(ord("A") + at), "range": not instant, "instant": instant}
    if panel.kind == "table":
        made["format"] = "table"
    if panel.exemplars and at == 0:
        made["exemplar"] = True
    return made


def panel_model(panel, number, x, y, runbooks):
    kind, options = OPTIONS[panel.kind]
    about = panel.question + (f" It may be empty: {panel.quiet}." if panel.quiet else "")
    made = {"id": number, "type": kind, "title": panel.title, "description": about, "datasource": SOURCE,
            "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
            "fieldConfig": {"defaults": defaults(panel), "overrides": overrides(panel)}, "options": options,
            "targets": [target(panel, at, query) for at, query in enumerate(panel.queries)]}
    if panel.kind == "table":
        made["transformations"] = [{"id": "organize", "options": {
            "excludeByName": {"Time": True, "Value": True}, "indexByName": {}, "renameByName": {}}}]
    if panel.runbook:
        made["links"] = [link("Runbook", f"{runbooks}/{panel.runbook}.md")]
    return made


def place(row):
    """The positions of a row's panels: from left to right, a new line when one does not fit."""
    x = y = height = 0
    for panel in row.panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        yield panel, x, y
        x, height = x + panel.width, max(height, panel.height)


def rows_model(dashboard, runbooks):
    made, y, number = [], 0, 0
    for row in dashboard.rows:
        number += 1
        header = {"type": "row", "id": number, "title": row.title, "collapsed": row.collapsed, "panels": [],
                  "gridPos": {"h": ROW_HEIGHT, "w": COLUMNS, "x": 0, "y": y}}
        made.append(header)
        y += ROW_HEIGHT
        bottom = y
        for panel, x, below in place(row):
            number += 1
            one = panel_model(panel, number, x, y + below, runbooks)
            (header["panels"] if row.collapsed else made).append(one)
            bottom = max(bottom, y + below + panel.height)
        y = y if row.collapsed else bottom
    return made


def variable_model(variable):
    if variable.choices:
        options = [{"text": c, "value": c, "selected": at == 0} for at, c in enumerate(variable.choices)]
        return {"type": "custom", "name": variable.name, "label": variable.label, "query": ",".join(variable.choices),
                "current": options[0], "options": options, "multi": False, "includeAll": False, "hide": 0,
                "skipUrlSync": False}
    return {"type": "query", "name": variable.name, "label": variable.label, "datasource": SOURCE,
            "query": variable.query, "definition": variable.query, "refresh": 2, "sort": 1, "regex": "",
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"], "selected": True}, "options": [], "hide": 0,
            "skipUrlSync": False}


def templating(dashboard):
    source = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "regex": "",
              "refresh": 1, "multi": False, "includeAll": False, "options": [], "hide": 0, "skipUrlSync": False}
    return {"list": [source] + [variable_model(v) for v in dashboard.variables]}


def annotations(dashboard):
    where = 'service=~"$service"' if any(v.name == "service" for v in dashboard.variables) else ""
    return {"list": [{
        "name": "Target changes", "datasource": SOURCE, "enable": True, "hide": False, "iconColor": "purple",
        "expr": f"sum by (service, pool) (changes(muster_controller_target_instances{{{where}}}[$__interval])) > 0",
        "step": "30s", "titleFormat": "{{service}}/{{pool}}", "textFormat": "a decision changed the target"}]}


def dashboard_model(dashboard, runbooks=RUNBOOKS):
    others = {"title": "Muster", "type": "dashboards", "icon": "external link", "tooltip": "The other dashboards",
              "tags": ["muster"], "asDropdown": True, "targetBlank": False, "includeVars": True, "keepTime": True,
              "url": ""}
    return {"uid": dashboard.uid, "title": dashboard.title, "description": dashboard.about, "tags": ["muster"],
            "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": False, "timezone": "browser", "weekStart": "",
            "fiscalYearStartMonth": 0, "graphTooltip": 1, "liveNow": False, "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"}, "timepicker": {}, "links": [others],
            "templating": templating(dashboard), "annotations": annotations(dashboard),
            "panels": rows_model(dashboard, runbooks)}


def text_of(dashboard, runbooks=RUNBOOKS):
    return json.dumps(dashboard_model(dashboard, runbooks), indent=2) + "\n"


def write(folder, runbooks):
    rules = folder / "rules"
    rules.mkdir(parents=True, exist_ok=True)
    for dashboard in panels.DASHBOARDS:
        (folder / (dashboard.uid + ".json")).write_text(text_of(dashboard, runbooks))
    for rule in sorted((HERE / "rules").glob("*.yaml")):
        (rules / rule.name).write_text(rule.read_text().replace(RUNBOOKS, runbooks))


def stale():
    """The names of the files that are not what the table says."""
    wanted = {d.uid + ".json": text_of(d) for d in panels.DASHBOARDS}
    found = {p.name: p.read_text() for p in HERE.glob("*.json")}
    return sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))


def main():
    parser = argparse.ArgumentParser(description="Makes Grafana's dashboards from panels.py.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="folder to write to (default: dashboards)")
    parser.add_argument("--runbooks", default=RUNBOOKS, metavar="URL", help="where links to runbooks go")
    options = parser.parse_args()
    if options.check:
        names = stale()
        for name in names:
            print(f"dashboards/{name} is not what its board_*.py says: run dashboards/generate.py")
        return 1 if names else 0
    if options.out.resolve() == HERE and options.runbooks != RUNBOOKS:
        parser.error("links to another place need another folder: give --out")
    write(options.out, options.runbooks.rstrip("/"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
