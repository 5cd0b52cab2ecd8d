"""If, Loop and Scan: branches and bodies as graphs of the module, and the layout of what they carry."""
