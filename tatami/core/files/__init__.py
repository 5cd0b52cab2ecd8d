"""Files: arrays, containers with checksums, data files next to a model, and the package's own content as a cache key."""
