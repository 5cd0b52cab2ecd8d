"""Questions about GPU kernels that later layers ask too."""
