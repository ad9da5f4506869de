"""Plot angular distances: which layers change their input least."""

from __future__ import annotations

from typing import Any

from quire.progressive.angular_distance import AngularDistances


def draw_distances(axes: Any, distances: AngularDistances, block: tuple[int, int] | None = None) -> None:
    """Draw one cell per block: its start on the x axis, its size on the y axis. `block` marks a plan's layers."""
    num_layers = distances.num_layers
    cells = [[row[i] if i < len(row) else float("nan") for i in range(num_layers)] for row in distances.values[:-1]]
    image = axes.imshow(
        cells, origin="lower", aspect="auto", cmap="viridis", extent=(-0.5, num_layers - 0.5, 0.5, num_layers - 0.5)
    )
    best = [distances.best(size) for size in range(1, num_layers)]
    axes.plot([b.start for b in best], [b.end - b.start for b in best], "o", ms=4, color="white", mec="black")
    if block is not None:
        axes.plot(block[0], block[1] - block[0], "s", ms=12, mfc="none", mec="#D55E00", mew=2)
    axes.grid(visible=False)
    axes.set_xlabel("first layer of the block")
    axes.set_ylabel("layers in the block")
    marks = "dots: the best of each size" + ("; square: the plan" if block is not None else "")
    axes.set_title(f"Layers that turn their input least ({marks})")
    axes.figure.colorbar(image, ax=axes, label="angular distance (0: same direction, 0.5: orthogonal)")
