"""Reports about a compilation: `explain` has what was decided and why, `copies` what is copied, `compiled_picture` the picture;
`playback` compares all stages on one input."""
