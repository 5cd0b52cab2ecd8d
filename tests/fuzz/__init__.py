"""Random programs as commands: each module runs seeds and says what differs."""
