"""What is written around the axes of a figure covers nothing."""

from itertools import pairwise

import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from featurelab.pipelines.engine.experiment.drawing import legend_below, style, subtitle

LONG = "Laptop preset: generated pictures of 8 x 8 pixels and an MLP in place of public sets and a ResNet-18, " * 2


@pytest.mark.parametrize("text", ["digits replace MNIST", LONG])
@pytest.mark.parametrize(("size", "cols"), [((6, 4.4), 1), ((9, 3.4), 3), ((4, 2.5), 1)])
def test_a_subtitle_lies_between_the_title_and_the_axes(size: tuple[float, float], cols: int, text: str) -> None:
    with style():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, cols, squeeze=False)
        for axis in axes.flat:
            axis.plot([0, 1], label="line")
            axis.set(title="panel", xlabel="step")
        legend_below(axes)
        title = figure.suptitle("Fig. 1. Growing unions")
        subtitle(figure, text)
        figure.draw_without_rendering()
    below = figure.texts[-1]
    assert " ".join(below.get_text().split()) == " ".join(text.split())
    extents = [title.get_window_extent(), below.get_window_extent(), axes[0, 0].get_tightbbox()]
    heights = [(extent.y0, extent.y1) for extent in extents if isinstance(extent, Bbox)]
    assert len(heights) == 3
    for (bottom, _), (_, top) in pairwise(heights):
        assert top <= bottom
    assert extents[1].x0 >= 0
    assert extents[1].x1 <= figure.bbox.width
