"""A self-contained page with curves and tables, of the results of scripts/search and scripts/redis."""

import html
import math

COLOURS = ["#0b6e4f", "#c1121f", "#1d4ed8", "#b45309", "#6b21a8", "#334155", "#0e7490", "#9d174d"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 320, 62, 40, 12, 12


def chart(title, x_name, y_name, series):
    """`series`: name, points (x, y or None), and whether it is dashed. The vertical axis is logarithmic."""
    points = [point for _, line, _ in series for point in line if point[1]]
    if not points:
        return f"<h3>{html.escape(title)}</h3><p>Too few samples.</p>"
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    low = math.floor(math.log10(min(y for _, y in points)) * 3) / 3
    high = math.ceil(math.log10(max(y for _, y in points)) * 3) / 3
    high = high if high > low else low + 1

    def place(x, y):
        return (LEFT + (x - x_low) / ((x_high - x_low) or 1) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - (math.log10(y) - low) / (high - low) * (HEIGHT - BOTTOM - TOP))

    parts = [f'<figure><figcaption>{html.escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             f'aria-label="{html.escape(title)}">']
    for power in range(math.floor(low), math.ceil(high) + 1):
        for step in (1, 2, 5):
            value = step * 10.0 ** power
            if low <= math.log10(value) <= high:
                y = place(x_low, value)[1]
                parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                             f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for x in sorted({x for x, _ in points}):
        parts.append(f'<text x="{place(x, 10 ** low)[0]:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(x_name)}</text>'
                 f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">{html.escape(y_name)}</text>')
    names = list(dict.fromkeys(name for name, _, _ in series))
    for name, line, dashed in series:
        colour = COLOURS[names.index(name) % len(COLOURS)]
        places = [place(x, y) for x, y in line if y]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        style = 'stroke-dasharray="5 4" opacity=".6"' if dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8" {style}/>')
        if not dashed:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in places]
    keys = "".join(f'<span style="color:{COLOURS[index % len(COLOURS)]}">&#9632; {html.escape(name)}</span> '
                   for index, name in enumerate(names))
    return "".join(parts) + f"</svg><div class=key>{keys}</div></figure>"


def table(head, rows):
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def page(title, parts):
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; color: #111; background: #fff }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1em }}
figure {{ margin: 0 }} figcaption {{ font-weight: 600 }} svg {{ width: 100%; height: auto }}
svg text {{ font-size: 11px; fill: #444 }} .grid {{ stroke: #ddd }} .key span {{ margin-right: 1em; white-space: nowrap }}
table {{ border-collapse: collapse; margin: 1em 0 }} td, th {{ border-bottom: 1px solid #ddd; padding: .2em .8em; text-align: right }}
td:first-child, th:first-child {{ text-align: left }}
</style>
<h1>{html.escape(title)}</h1>
{"".join(part + chr(10) for part in parts)}</html>
"""
