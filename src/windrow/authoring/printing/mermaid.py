"""A pipeline as a Mermaid flowchart."""

from __future__ import annotations

from windrow import model as m
from windrow.authoring.printing.flowchart import Way, flowchart


def to_mermaid(graph: m.Graph) -> str:
    """Return a flowchart: the data's way from source to sink, with dead letters and late output; secrets are ***."""
    chart = flowchart(graph)
    lines = ["flowchart LR"]
    for box in chart.boxes:
        left, right = ("[(", ")]") if box.is_store else ("[", "]")
        # within quotes Mermaid gives a meaning to these characters alone
        lines.append(f'  {box.id}{left}"<b>{_escaped(box.noun)}</b><br/>{_escaped(box.text)}"{right}')
    lines += [f"  {f' {_arrow(way)} '.join(way.boxes)}" for way in chart.ways]
    return "\n".join(lines) + "\n"


def _arrow(way: Way) -> str:
    if way.is_aside:
        return f"-. {_escaped(way.label)} .->"
    return f'-- "{_escaped(way.label)}" -->' if way.label else "-->"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
