"""Edits of documents: what is edited, how, and the process that tries one."""
