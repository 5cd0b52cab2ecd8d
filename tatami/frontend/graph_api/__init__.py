"""Parts of the Graph API (`frontend.graph`): tensors with their methods by family, argument checks, places in users' programs."""
