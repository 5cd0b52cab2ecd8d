"""Every version of every operator."""
