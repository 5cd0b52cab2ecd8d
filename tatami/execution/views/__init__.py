"""Questions about an execution plan that later layers ask too."""
