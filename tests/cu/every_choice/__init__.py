"""Every kernel and plan of a set through NVRTC and ptxas: the sets, the commands, the records."""
