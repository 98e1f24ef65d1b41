"""queries.py - fills the variables of Grafana into the dashboards' queries, and asks a Prometheus."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request

TIMEOUT_S = 30


class QueryError(Exception):
    """Prometheus refused a query, or could not be reached."""


def fill(expression, values):
    """Replaces $name and ${name} by values[name]; an unknown name is an error."""
    def one(match):
        name = match.group(1) or match.group(2)
        if name not in values:
            raise QueryError(f"no value for ${name} in: {expression}")
        return values[name]
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", one, expression)


def variables(model, interval="15s", span="5m"):
    """Values for a dashboard's variables: everything, and the first of a list of choices."""
    values = {"__rate_interval": interval, "__interval": interval, "__range": span}
    for variable in model["templating"]["list"]:
        if variable["type"] == "query":
            values[variable["name"]] = variable["allValue"]
        elif variable["type"] == "custom":
            values[variable["name"]] = variable["options"][0]["value"]
    return values


def panels(model):
    """All panels of a dashboard, those of collapsed rows too."""
    for panel in model["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def legend(text, labels):
    """A series' name: {{label}} replaced by the label's value."""
    return re.sub(r"{{\s*(\w+)\s*}}", lambda m: labels.get(m.group(1), ""), text).strip()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url):
        self.url = url.rstrip("/")

    def get(self, path, **parameters):
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            try:
                with urllib.request.urlopen(address, timeout=TIMEOUT_S) as reply:
                    body = json.load(reply)
            except urllib.error.HTTPError as error:
                body = json.load(error)  # a refused query says why; one that is not ready says it in no JSON
        except (OSError, ValueError) as error:
            raise QueryError(f"{address}: {error}") from error
        if body.get("status") != "success":
            raise QueryError(f"{body.get('error')}: {parameters}")
        return body["data"]

    def instant(self, expression, time_s=None):
        """[(labels, value)] of an instant vector or a scalar."""
        data = self.get("query", query=expression, **({"time": time_s} if time_s else {}))
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(r["metric"], float(r["value"][1])) for r in data["result"]]

    def range(self, expression, from_s, to_s, step_s):
        """[(labels, [(time, value)])], values that are not numbers included."""
        data = self.get("query_range", query=expression, start=from_s, end=to_s, step=step_s)
        return [(r["metric"], [(float(t), float(v)) for t, v in r["values"]]) for r in data["result"]]

    def exemplars(self, expression, from_s, to_s):
        """[(time, value, labels)] of the requests that a query's buckets remember."""
        data = self.get("query_exemplars", query=expression, start=from_s, end=to_s)
        return [(float(e["timestamp"]), float(e["value"]), e["labels"]) for s in data for e in s["exemplars"]]
