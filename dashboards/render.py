#!/usr/bin/env python3
"""render.py - draws a dashboard as one SVG picture from a running Prometheus, without Grafana.

    dashboards/render.py --prometheus http://127.0.0.1:9090 --dashboard muster-fleet --minutes 30 --out fleet.svg
    dashboards/render.py --prometheus URL --all --out FOLDER

It draws what Grafana would: every panel at its place, collapsed rows opened, lines, stacks, bounds dashed, states,
bars and tables, values in their units, and points of single requests. `--set service=chat` chooses a value of a
variable. It is for looking at dashboards where no Grafana is, as in a test or a terminal.
"""

import argparse
import json
import math
import pathlib
import re
import sys
import time
from xml.sax.saxutils import escape

import queries

HERE = pathlib.Path(__file__).resolve().parent
COLUMN, UNIT, GAP = 66, 30, 6  # pixels of a column, of a unit of height, between panels
POINTS = 240  # of a line
COLOURS = ["#3274d9", "#e0752d", "#56a64b", "#e02f44", "#8f3bb8", "#f2cc0c", "#1f9c9c", "#c15c17", "#7c8793", "#b877d9"]
NAMED = {"green": "#37872d", "orange": "#e0752d", "red": "#c4162a", "blue": "#1f60c4", "transparent": "#e4e7eb",
         "yellow": "#d8b100", "purple": "#8f3bb8", "grey": "#7c8793"}
LABEL = 'font-size="11" fill="#5a6270"'


# ---- numbers as people read them ----

def scaled(value, steps):
    """A value in the largest of the steps that it reaches, else in the last; 0 has no step."""
    factor, name = next((s for s in steps if abs(value) >= s[0]), steps[-1])
    return f"{value / factor:.3g}{name}" if value else "0"


def number(value, unit):
    """A value in Grafana's unit."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf"
    thousands = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]
    if unit == "s":
        return scaled(value, [(86400, " d"), (3600, " h"), (60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")])
    if unit in ("bytes", "Bps"):
        words = scaled(value, [(2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B")])
        return words + ("/s" if unit == "Bps" else "")
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "percent":
        return f"{value:.3g} %"
    if unit == "currencyUSD":
        return "$" + (f"{value:.2f}" if 0.01 <= abs(value) < 1e4 or value == 0 else scaled(value, thousands))
    ending = {"reqps": " req/s", "cps": " /s", "watt": " W", "celsius": " °C", "hertz": " Hz"}.get(unit, "")
    if unit.startswith("suffix:"):
        ending = " " + unit.split(":", 1)[1].strip()
    return scaled(value, thousands) + ending


def ticks(low, high, unit, count=4):
    """Round values between low and high; bytes are round in powers of two."""
    span = max(high - low, 1e-12)
    if unit in ("bytes", "Bps"):
        step = 2 ** math.ceil(math.log2(span / count))
    else:
        step = 10 ** math.floor(math.log10(span / count))
        step = next(step * f for f in (1, 2, 5, 10) if span / (step * f) <= count)
    at = math.ceil(low / step) * step
    while at <= high + step * 1e-6:
        yield at
        at += step


# ---- shapes ----

def text(x, y, words, more=LABEL, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


def box(x, y, width, height, more):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" {more}/>'


def cut(words, width):
    """Words that fit into so many pixels."""
    most = max(int(width / 6.3), 3)
    return words if len(words) <= most else words[:most - 1] + "…"


def colour_of(panel, value):
    """The colour of the threshold that a value has reached."""
    found = "green"
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            found = step["color"]
    return NAMED.get(found, found)


class Frame:
    """The part of a panel below its title."""

    def __init__(self, panel):
        at = panel["gridPos"]
        self.left, self.top = at["x"] * COLUMN + GAP, at["y"] * UNIT + GAP
        self.width, self.height = at["w"] * COLUMN - GAP, at["h"] * UNIT - GAP
        self.unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "none")


def nothing(panel, frame, why=None):
    words = why or panel["fieldConfig"]["defaults"].get("noValue", "no data")
    return [text(frame.left + frame.width / 2, frame.top + frame.height / 2 + 6, cut(words, frame.width - 20),
                 'font-size="12" fill="#9aa2ad"', "middle")]


def series_of(panel, source, values, window):
    """[(name, points)] of all queries."""
    from_s, to_s, step_s = window
    found = []
    for target in panel["targets"]:
        for labels, points in source.range(queries.fill(target["expr"], values), from_s, to_s, step_s):
            name = queries.legend(target.get("legendFormat", ""), labels) or "value"
            if any(not math.isnan(v) for _, v in points):
                found.append((name, points))
    return found


# ---- kinds of panels ----

def draw_stat(panel, frame, source, values, window):
    found = series_of(panel, source, values, window)
    if not found or math.isnan(found[0][1][-1][1]):
        return nothing(panel, frame)
    points = found[0][1]
    last, colour = points[-1][1], colour_of(panel, points[-1][1])
    shapes = [text(frame.left + frame.width / 2, frame.top + frame.height / 2 + 12, number(last, frame.unit),
                   f'font-size="30" font-weight="600" fill="{colour}"', "middle")]
    finite = [v for _, v in points if math.isfinite(v)]
    low, high = min(finite), max(finite)
    base = frame.top + frame.height - 6
    for run in split(points, window[2]) if high > low else []:
        line = " ".join(f"{frame.left + 8 + (t - window[0]) / (window[1] - window[0]) * (frame.width - 16):.1f},"
                        f"{base - (v - low) / (high - low) * 26:.1f}" for t, v in run)
        shapes.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.2" opacity="0.6"/>')
    return shapes


def draw_bars(panel, frame, source, values, window):
    found = []
    for target in panel["targets"]:
        for labels, value in source.instant(queries.fill(target["expr"], values), window[1]):
            if not math.isnan(value):
                found.append((queries.legend(target["legendFormat"], labels), value))
    if not found:
        return nothing(panel, frame)
    most = max(max(v for _, v in found), 1e-12)
    height = min((frame.height - 34) / len(found), 22)
    shapes, room = [], frame.width * 0.52
    for at, (name, value) in enumerate(sorted(found)):
        y = frame.top + 30 + at * height
        shapes += [text(frame.left + 8, y + height * 0.7, cut(name, frame.width * 0.28)),
                   box(frame.left + frame.width * 0.3, y + 2, room * value / most, height - 4, 'fill="#3274d9"'),
                   text(frame.left + frame.width - 8, y + height * 0.7, number(value, frame.unit), anchor="end")]
    return shapes


def draw_table(panel, frame, source, values, window):
    rows = []
    for target in panel["targets"]:
        for labels, _ in source.instant(queries.fill(target["expr"], values), window[1]):
            rows.append({k: v for k, v in labels.items() if k != "__name__"})
    if not rows:
        return nothing(panel, frame)
    names = sorted({name for row in rows for name in row})
    wide = frame.width / len(names)
    shapes = [text(frame.left + 8 + at * wide, frame.top + 40, name, LABEL + ' font-weight="600"')
              for at, name in enumerate(names)]
    fits = int((frame.height - 56) / 18)
    for at, row in enumerate(sorted(rows, key=lambda r: [r.get(n, "") for n in names])[:fits]):
        shapes += [text(frame.left + 8 + k * wide, frame.top + 60 + at * 18, cut(row.get(name, ""), wide - 12))
                   for k, name in enumerate(names)]
    return shapes


def draw_states(panel, frame, source, values, window):
    found = series_of(panel, source, values, window)
    found = [(name, points) for name, points in found if any(v == v for _, v in points)]
    if not found:
        return nothing(panel, frame)
    names = min(frame.width * 0.66, 6.5 * max(len(name) for name, _ in found) + 16)
    width, height = frame.width - names - 12, min((frame.height - 56) / len(found), 26)
    shapes = []
    for at, (name, points) in enumerate(found):
        y = frame.top + 32 + at * height
        shapes += [text(frame.left + 8, y + height * 0.65, cut(name, names - 12))]
        for (t, v), after in zip(points, [p[0] for p in points[1:]] + [window[1]]):
            x = frame.left + names + (t - window[0]) / (window[1] - window[0]) * width
            long = (min(after, t + 2 * window[2]) - t) / (window[1] - window[0]) * width
            colour = NAMED["blue"] if v == 1 else NAMED["transparent"]
            shapes.append(box(x, y + 2, long + 0.5, height - 4, f'fill="{colour}"'))
    return shapes + time_axis(frame.left + names, frame.top + frame.height - 8, width, window)


def time_axis(left, y, width, window):
    from_s, to_s, _ = window
    most = max(width / 90, 1)
    step = next((s for s in (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600) if (to_s - from_s) / s <= most), 7200)
    shapes, at = [], math.ceil(from_s / step) * step
    while left + (at - from_s) / (to_s - from_s) * width < left + width - 24:
        shapes.append(text(left + (at - from_s) / (to_s - from_s) * width, y,
                           time.strftime("%H:%M:%S" if step < 60 else "%H:%M", time.localtime(at)), anchor="middle"))
        at += step
    return shapes


def legend_lines(names, width):
    """The legend in lines of names that fit, each with the number of its series."""
    lines, line, used = [], [], 0
    for at, name in enumerate(names):
        long = min(len(name), 60) * 6.3 + 24
        if line and used + long > width:
            lines.append(line)
            line, used = [], 0
        line.append((at, name, used))
        used += long
    return lines + [line] if line else lines


def split(points, step_s):
    """Runs of neighbouring values: a gap or a NaN ends a line."""
    run = []
    for t, v in points:
        if not math.isfinite(v) or (run and t - run[-1][0] > 1.5 * step_s):
            if run:
                yield run
            run = []
        if math.isfinite(v):
            run.append((t, v))
    if run:
        yield run


def stacked(found):
    """Each series on top of those before it."""
    below, made = {}, []
    for name, points in found:
        lifted = []
        for t, v in points:
            base = below.get(t, 0)
            lifted.append((t, base, base + (v if math.isfinite(v) else 0)))
            below[t] = lifted[-1][2]
        made.append((name, lifted))
    return made


def dashed_pattern(panel):
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"]["id"] == "byRegexp":
            return re.compile(override["matcher"]["options"].strip("/"))
    return re.compile("(?!)")


def colours_of(panel, names):
    """The colour of each series: an override by its name, else the next of the palette."""
    fixed = {o["matcher"]["options"]: p["value"]["fixedColor"] for o in panel["fieldConfig"]["overrides"]
             for p in o["properties"] if o["matcher"]["id"] == "byName" and p["id"] == "color"}
    return [NAMED.get(fixed.get(name), COLOURS[at % len(COLOURS)]) for at, name in enumerate(names)]


class Chart:
    """The axes of a panel of lines."""

    def __init__(self, panel, frame, window, low, high, legend_height):
        fixed = panel["fieldConfig"]["defaults"]
        self.low = fixed.get("min", low)
        self.high = fixed.get("max", high)
        self.log = fixed["custom"]["scaleDistribution"]["type"] == "log"
        if self.log:
            self.low, self.high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
        if self.high <= self.low:
            self.high = self.low + 1
        self.frame, self.window = frame, window
        self.left, self.right = frame.left + 74, frame.left + frame.width - 12
        self.top, self.bottom = frame.top + 32, frame.top + frame.height - 26 - legend_height

    def x(self, t):
        return self.left + (t - self.window[0]) / (self.window[1] - self.window[0]) * (self.right - self.left)

    def y(self, v):
        v, low, high = min(max(v, self.low), self.high), self.low, self.high
        if self.log:
            v, low, high = math.log10(v), math.log10(low), math.log10(high)
        return self.bottom - (v - low) / (high - low) * (self.bottom - self.top)

    def grid(self):
        shapes = []
        for at in self.powers() if self.log else ticks(self.low, self.high, self.frame.unit):
            y = self.y(at)
            shapes += [f'<line x1="{self.left:.1f}" x2="{self.right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e7eb"/>',
                       text(self.left - 6, y + 4, number(at, self.frame.unit), anchor="end")]
        return shapes + time_axis(self.left, self.bottom + 16, self.right - self.left, self.window)

    def powers(self):
        return [10.0 ** k for k in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)]

    def path(self, points):
        return " ".join(f"{self.x(t):.1f},{self.y(v):.1f}" for t, v in points)


def draw_exemplars(panel, chart, source, values, window):
    shapes = []
    for target in panel["targets"]:
        if not target.get("exemplar"):
            continue
        expression = queries.fill(target["expr"], values)
        for t, v, labels in source.exemplars(expression, window[0], window[1]):
            if v <= chart.high and window[0] <= t <= window[1]:
                shapes.append(f'<circle cx="{chart.x(t):.1f}" cy="{chart.y(v):.1f}" r="2" fill="#37872d" '
                              f'opacity="0.45"><title>{escape(str(labels))} {number(v, chart.frame.unit)}</title>'
                              f'</circle>')
    return shapes


def draw_lines(panel, frame, source, values, window):
    found = series_of(panel, source, values, window)
    if not found:
        return nothing(panel, frame)
    custom = panel["fieldConfig"]["defaults"]["custom"]
    is_stacked = custom["stacking"]["mode"] == "normal"
    lines = legend_lines([name for name, _ in found], frame.width - 20)[:3]
    tops = [v for _, points in found for _, v in points if math.isfinite(v)]
    if is_stacked:
        tops += [v for _, points in stacked(found) for _, _, v in points]
    if not tops:
        return nothing(panel, frame)
    steps = [s["value"] for s in panel["fieldConfig"]["defaults"]["thresholds"]["steps"] if s["value"] is not None]
    if custom["scaleDistribution"]["type"] == "log":
        tops = [v for v in tops if v > 0] or [1]
    high, low = max(tops), min(tops)
    shown = [s for s in steps if custom["thresholdsStyle"]["mode"] != "off" and s <= high * 2.5]
    below = low if custom["scaleDistribution"]["type"] == "log" else low - (high - low) * 0.08
    chart = Chart(panel, frame, window, below, max([high * 1.06] + shown), 16 * len(lines))
    shapes, dashed = chart.grid(), dashed_pattern(panel)
    shapes += draw_exemplars(panel, chart, source, values, window)
    colours = colours_of(panel, [name for name, _ in found])
    for value in shown:
        y = chart.y(value)
        shapes.append(f'<line x1="{chart.left}" x2="{chart.right}" y1="{y:.1f}" y2="{y:.1f}" '
                      f'stroke="{colour_of(panel, value)}" stroke-dasharray="5 4"/>')
    if is_stacked:
        for at, (_, points) in reversed(list(enumerate(stacked(found)))):
            for run in split([(t, v) for t, _, v in points], window[2]):
                times = {t for t, _ in run}
                area = run + [(t, b) for t, b, _ in reversed(points) if t in times]
                shapes.append(f'<polygon points="{chart.path(area)}" fill="{colours[at]}" fill-opacity="0.45" '
                              f'stroke="{colours[at]}" stroke-width="0.8"/>')
    else:
        for at, (name, points) in enumerate(found):
            style = ' stroke-dasharray="7 5"' if dashed.search(name) else ""
            for run in split(points, window[2]):
                run = run if len(run) > 1 else [run[0], (run[0][0] + window[2] / 2, run[0][1])]
                shapes.append(f'<polyline points="{chart.path(run)}" fill="none" '
                              f'stroke="{colours[at]}" stroke-width="1.5"{style}/>')
    for row, line in enumerate(lines):
        y = frame.top + frame.height - 16 * (len(lines) - row) + 8
        for at, name, x in line:
            shapes += [box(frame.left + 10 + x, y - 8, 10, 3 if dashed.search(name) else 8,
                           f'fill="{colours[at]}"'),
                       text(frame.left + 24 + x, y, cut(name, 380))]
    return shapes


KINDS = {"timeseries": draw_lines, "stat": draw_stat, "bargauge": draw_bars, "table": draw_table,
         "state-timeline": draw_states}


# ---- the picture ----

def opened(model):
    """The panels with collapsed rows opened, so that nothing is hidden."""
    shift, placed = 0, []
    for panel in model["panels"]:
        at = dict(panel["gridPos"], y=panel["gridPos"]["y"] + shift)
        placed.append(dict(panel, gridPos=at))
        if panel["type"] == "row" and panel["collapsed"]:
            inside = panel["panels"]
            placed += [dict(p, gridPos=dict(p["gridPos"], y=p["gridPos"]["y"] + shift)) for p in inside]
            bottom = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in inside)
            shift += bottom - panel["gridPos"]["y"] - panel["gridPos"]["h"]
    return placed


def draw_panel(panel, source, values, window):
    frame = Frame(panel)
    if panel["type"] == "row":
        return [text(frame.left, frame.top + 18, panel["title"], 'font-size="15" font-weight="600" fill="#24292e"')]
    shapes = [box(frame.left, frame.top, frame.width, frame.height, 'fill="#ffffff" stroke="#d5d9de" rx="3"'),
              text(frame.left + 10, frame.top + 20, cut(panel["title"], frame.width - 20),
                   'font-size="13" font-weight="600" fill="#24292e"')]
    try:
        return shapes + KINDS[panel["type"]](panel, frame, source, values, window)
    except queries.QueryError as error:
        return shapes + nothing(panel, frame, str(error))


def picture(model, source, values, window):
    placed = opened(model)
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in placed) * UNIT + 60
    width = 24 * COLUMN + 2 * GAP
    shapes = [box(0, 0, width, height, 'fill="#f2f4f6"'),
              text(GAP, 28, model["title"], 'font-size="20" font-weight="700" fill="#24292e"'),
              text(GAP + 420, 28, model["description"], 'font-size="13" fill="#5a6270"'),
              '<g transform="translate(0 40)">']
    for panel in placed:
        shapes += draw_panel(panel, source, values, window)
    body = "\n".join(shapes)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="DejaVu Sans, sans-serif">\n{body}\n</g>\n</svg>\n')


def window_of(minutes, end_s):
    step_s = max(1, round(minutes * 60 / POINTS))
    end_s = math.floor(end_s / step_s) * step_s
    return end_s - minutes * 60, end_s, step_s


def render(name, source, minutes, interval, chosen, end_s=None):
    """The SVG of the dashboard of this uid."""
    model = json.loads((HERE / (name + ".json")).read_text())
    values = queries.variables(model, interval, f"{max(int(minutes * 60), 1)}s")
    values.update({k: v for k, v in chosen.items() if k in values})
    return picture(model, source, values, window_of(minutes, end_s or time.time()))


def main():
    names = sorted(p.stem for p in HERE.glob("*.json"))
    parser = argparse.ArgumentParser(description="Draws dashboards as SVG from a running Prometheus.")
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--dashboard", choices=names)
    parser.add_argument("--all", action="store_true", help="every dashboard, into the folder --out")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=30, help="how far back (default: 30)")
    parser.add_argument("--rate", default="1m", metavar="DURATION",
                        help="range of rates, four times the scrape interval or more (default: 1m)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="value of a variable")
    options = parser.parse_args()
    if bool(options.dashboard) == options.all:
        parser.error("give --dashboard NAME or --all")
    chosen = dict(pair.split("=", 1) for pair in options.set if "=" in pair)
    source = queries.Prometheus(options.prometheus)
    try:
        source.get("status/buildinfo")
    except queries.QueryError as error:
        print(f"No Prometheus answers there: {error}", file=sys.stderr)
        return 1
    if options.all:
        options.out.mkdir(parents=True, exist_ok=True)
    for name in names if options.all else [options.dashboard]:
        to = options.out / (name + ".svg") if options.all else options.out
        to.write_text(render(name, source, options.minutes, options.rate, chosen))
        print(to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
