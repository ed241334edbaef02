"""docs/imports.svg: who imports whom in mixed_gemm/, from the import statements.

A circle, or a room without a place in the picture, is an error.
"""

from __future__ import annotations

import graphlib

from import_graph import ROOMS, between_rooms, imports

from .page import Page, whole
from .svg import box, svg, text

# Room -> (row from the top, column), so that no arrow crosses a box.
PLACES = {
    "cli": (0, 0),
    "__init__": (1, 0),
    "reference": (4, 2),
    "integrations": (2, 0),
    "doctor": (2, 2),
    "parallel": (2, 1),
    "distributed": (3, 1),
    "quantization": (3, 0),
    "formats": (4, 0),
    "selection": (4, 1),
    "nn": (5, 0),
    "weights": (6, 0),
    "ops": (7, 0),
    "_progress": (7, 1),
    "_library": (8, 0),
    "_after_import": (8, 1),
    "_freed": (8, 2),
}
LEFT, TOP, WIDTH, HEIGHT, ACROSS, DOWN = 20, 20, 236, 46, 60, 34  # pixels; the last two are gaps
INSET = 20  # from the corner of a box to an arrow of another column


def without_detours(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The edges that do not follow from others: a -> c goes where there are a -> b and b -> c."""

    def reached(room: str) -> set[str]:
        return graph[room].union(*map(reached, graph[room]))

    return [
        (room, other)
        for room in graph
        for other in sorted(graph[room])
        if not any(other in reached(between) for between in graph[room])
    ]


def corner(room: str) -> tuple[int, int]:
    row, column = PLACES[room]
    return LEFT + column * (WIDTH + ACROSS), TOP + row * (HEIGHT + DOWN)


def arrow(room: str, other: str) -> str:
    """Down a column from edge to edge; to the right from the side of a box to the top of another;
    to the left from the bottom of a box to the side of another."""
    (x, y), (to_x, to_y) = corner(room), corner(other)
    if x == to_x:
        line = (x + WIDTH // 2, y + HEIGHT, to_x + WIDTH // 2, to_y)
    elif x < to_x:
        line = (x + WIDTH, y + HEIGHT // 2, to_x + INSET, to_y)
    else:
        line = (x + INSET, y + HEIGHT, to_x + WIDTH, to_y + HEIGHT // 2)
    start_x, start_y, end_x, end_y = line
    return (
        f'<path d="M{start_x} {start_y} L{end_x} {end_y}" stroke="#333" fill="none" '
        'marker-end="url(#tip)"/>'
    )


TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#333"/></marker></defs>'
)


def draw() -> str:
    graph = between_rooms(imports())
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise ValueError(f"a circle: {' imports '.join(reversed(error.args[1]))}") from None
    if graph.keys() != PLACES.keys():
        raise ValueError(f"PLACES and the rooms differ: {graph.keys() ^ PLACES.keys()}")
    body = [TIP, *(arrow(*edge) for edge in without_detours(graph))]
    for room in ROOMS:
        x, y = corner(room.name)
        body += [
            box(x, y, WIDTH, HEIGHT, "#eef3fb"),
            text(x + 12, y + 20, room.name, 14, 'font-weight="bold"'),
            text(x + 12, y + 37, room.holds, 12, 'fill="#555"'),
        ]
    rows, columns = (1 + max(place[i] for place in PLACES.values()) for i in (0, 1))
    bottom = TOP + rows * (HEIGHT + DOWN)
    caption = "An arrow: imports. What follows from other arrows is left out."
    body.append(text(LEFT, bottom, caption, 11, 'fill="#777"'))
    return svg(2 * LEFT + columns * (WIDTH + ACROSS) - ACROSS, bottom + 14, body)


PAGE = Page({"docs/imports.svg": whole(draw)})
