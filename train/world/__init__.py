"""A small world: what there is in it, what is told of it, and what can be asked."""

from train.world import (
    events,
    people,
    places,
    plain_events,
    plain_homes,
    plain_places,
    scenes_events,
    scenes_life,
    scenes_things,
    things,
)

FACTS = tuple(frame for module in (people, places, events, things) for frame in module.FRAMES)
"""Frames whose tellings are one sentence each."""

SCENES = tuple(frame for module in (scenes_life, scenes_events, scenes_things) for frame in module.FRAMES)
"""Frames told in two or three sentences, in which values of one kind play different parts; each counts as two facts."""

PLAIN_SCENES = tuple(frame for module in (plain_events, plain_homes, plain_places) for frame in module.FRAMES)
"""Scenes of which most questions name nothing, as people ask: "Who mended the clock?"."""

FRAMES = (*FACTS, *SCENES, *PLAIN_SCENES)
