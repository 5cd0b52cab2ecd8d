"""Views of Regions over images: windows, convolutions, Winograd tiles, and how TMA reads pixels."""
