"""From measurements to specifications with intervals, draws and provenance: a step, a link, profiles of a step."""
