"""Files: arrays, containers with checksums, data beside a model, and the package's own content as a cache key."""
