"""What notebooks show of executors, clients and reports: HTML without scripts or colours of
its own for text, so that it is as light or dark as the notebook. Names are escaped, and lists
are short, however long they are."""

import html
from typing import Any, Dict, Iterable, List, Sequence, Tuple

ROWS_MAX = 10
"""Rows of a table."""
POINTS_MAX = 256
"""Points of a line."""
WIDTH, HEIGHT = 480, 60
"""A line's picture."""

LINE = "1px solid rgba(128,128,128,.45)"
CELL = "text-align:left;padding:.15em .8em .15em 0;border-bottom:%s;background:transparent" % LINE
DONE, FAILED = "#2e9455", "#d04545"
"""Colours that are seen on light and on dark ground."""

Row = Sequence[Any]


def _text(value: Any) -> str:
    if isinstance(value, float):
        value = "%.4g" % value
    elif isinstance(value, int):
        value = format(value, ",")
    return html.escape(str(value))


def _facts(facts: Iterable[Tuple[str, Any]]) -> str:
    shown = ["<b>%s</b>&nbsp;%s" % (html.escape(name), _text(value)) for name, value in facts]
    return '<div style="margin:.3em 0">%s</div>' % " &ensp; ".join(shown)


def _table(title: str, heads: Sequence[str], rows: List[Row]) -> str:
    if not rows:
        return ""
    head = "".join('<th scope="col" style="%s">%s</th>' % (CELL, html.escape(one)) for one in heads)
    body = "".join(
        "<tr>%s</tr>" % "".join('<td style="%s">%s</td>' % (CELL, _text(cell)) for cell in row)
        for row in rows[:ROWS_MAX]
    )
    more = len(rows) - ROWS_MAX
    rest = "<div>and %s more</div>" % format(more, ",") if more > 0 else ""
    caption = (
        '<caption style="caption-side:top;text-align:left;padding:.4em 0 .1em;color:inherit">'
        "%s</caption>" % html.escape(title)
    )
    return (
        '<div style="overflow-x:auto" tabindex="0" role="region" aria-label="%s">'
        '<table style="border-collapse:collapse;margin:0">%s<thead><tr>%s</tr></thead>'
        "<tbody>%s</tbody></table>%s</div>"
    ) % (html.escape(title, quote=True), caption, head, body, rest)


def _bar(done: int, failed: int, total: int) -> str:
    """How much is done and failed, as a bar; its words are beside it."""
    if total <= 0:
        return ""
    parts = "".join(
        '<span style="display:inline-block;height:100%%;width:%.2f%%;background:%s"></span>'
        % (100.0 * count / total, colour)
        for count, colour in ((done, DONE), (failed, FAILED))
    )
    return (
        '<div aria-hidden="true" style="height:.6em;max-width:30em;border:%s;font-size:1em;'
        'line-height:0;overflow:hidden;white-space:nowrap">%s</div>' % (LINE, parts)
    )


def _line(title: str, points: Sequence[Tuple[float, float]]) -> str:
    """Values over time, as steps."""
    step = max(1, -(-len(points) // POINTS_MAX))
    points = points[::step]
    if len(points) < 2:
        return ""
    end = max(points[-1][0], 1e-9)
    most = max(max(value for _, value in points), 1e-9)
    path = "M" + "H".join(
        "%.1f %s"
        % (WIDTH * at / end, "V%.1f" % (HEIGHT - (HEIGHT - 2) * value / most) if place else "%.1f" % HEIGHT)
        for place, (at, value) in enumerate(points)
    )
    label = "%s: at most %.4g" % (title, most)
    return (
        '<figure style="margin:.4em 0"><svg role="img" aria-label="%s" viewBox="0 0 %d %d" '
        'width="%d" height="%d" style="max-width:100%%"><path d="%s" fill="none" '
        'stroke="currentColor" stroke-width="1.2"/></svg><figcaption>%s</figcaption></figure>'
    ) % (html.escape(label, quote=True), WIDTH, HEIGHT, WIDTH, HEIGHT, path, html.escape(label))


def _view(title: str, *parts: str) -> str:
    head = "<strong>%s</strong>" % html.escape(title)
    return '<div style="color:inherit;background:transparent">%s%s</div>' % (head, "".join(parts))


def of_executor(place: str, calls: int, workers: int) -> str:
    """An executor: where it makes calls, how many are under way, and by how many workers, 0 if
    that is not its own to say."""
    facts: List[Tuple[str, Any]] = [("where", place), ("calls under way", calls)]
    if workers:
        facts.append(("made side by side", workers))
    return _view("falkon.Executor", _facts(facts))


def of_error(title: str, error: Exception) -> str:
    """What cannot be shown, and why."""
    return _view(title, "<div>%s</div>" % _text(error))


def of_status(status: Dict[str, Any]) -> str:
    """A dispatcher, with its instances and executors."""
    instances, executors = status["instances"], status["executors"]
    total, done, failed = (
        sum(one[name] for one in instances) for name in ("tasks", "done", "failed")
    )
    facts = [
        ("instances", len(instances)),
        ("executors", len(executors)),
        ("tasks", total),
        ("done", done),
        ("failed", failed),
    ]
    rows: List[Row] = [
        (one["id"], one["name"], one["state"], one["tasks"], one["done"], one["failed"])
        for one in reversed(instances)
    ]
    heads = ("number", "name", "state", "tasks", "done", "failed")
    return _view(
        "falkon.Client",
        _facts(facts),
        _bar(done, failed, total),
        _table("Instances", heads, rows),
        _table(
            "Executors",
            ("name", "tasks"),
            [(one["name"], one["tasks"]) for one in executors],
        ),
    )


class Report(Dict[str, Any]):
    """A report as ``falkon report --json`` gives it, which a notebook shows."""

    def _repr_html_(self) -> str:
        all_tasks, slots = self["all"], self["slot_seconds"]
        facts = [
            ("done", all_tasks["done"]),
            ("failed", all_tasks["failed"]),
            ("cancelled", all_tasks["cancelled"]),
            ("makespan, s", float(self["makespan_s"])),
            ("efficiency, %", 100.0 * self["efficiency"]),
        ]
        course = self["course"]
        ended = [(one["at_s"], one["ended"] / max(one["seconds"], 1e-9)) for one in course]
        running = [(one["at_s"], one["running"]) for one in course]
        total = all_tasks["done"] + all_tasks["failed"] + all_tasks["cancelled"]
        there = max(slots["there"], 1e-9)
        parts = ("run", "failed", "starting", "dispatch", "no_work")
        return _view(
            "Report of " + (", ".join(_name(one) for one in self["instances"][:3]) or "a run"),
            _facts(facts),
            _bar(all_tasks["done"], all_tasks["failed"], total),
            _line("tasks that ran", running),
            _line("tasks that ended in a second", ended),
            _table(
                "The time of all slots",
                ("part", "%"),
                [(name.replace("_", " "), 100.0 * slots[name] / there) for name in parts],
            ),
            _table(
                "Commands",
                ("command", "done", "failed", "mean, s"),
                [(one["command"], one["done"], one["failed"], one["mean_s"]) for one in self["commands"]],
            ),
            _table(
                "Failures",
                ("tasks", "message", "command"),
                [(one["count"], one["message"], one["command"]) for one in self["failures"]],
            ),
            _table(
                "What would have made it faster",
                ("advice",),
                [(one["text"],) for one in self["advice"]],
            ),
        )


def _name(instance: Dict[str, Any]) -> str:
    return str(instance["name"] or "instance %d" % instance["id"])
