"""A small world: what there is in it, what is told of it, and what can be asked."""

from train.world.frame import read_frames

FACTS = read_frames("people", "places", "events", "things")
"""Frames whose tellings are one sentence each."""

SCENES = read_frames("scenes_life", "scenes_events", "scenes_things")
"""Frames told in two or three sentences, in which values of one kind play different parts; each counts as two facts."""

PLAIN_SCENES = read_frames("plain_events", "plain_homes", "plain_places")
"""Scenes of which most questions name nothing, as people ask: "Who mended the clock?"."""

FRAMES = (*FACTS, *SCENES, *PLAIN_SCENES)
