"""Construction: a group of values becomes a Region with axes, lets and yields, every read inside its tensor."""
