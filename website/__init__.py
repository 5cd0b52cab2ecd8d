"""The documentation as a site, by MkDocs: `make docs` (docs/decisions/0098-a-site-of-the-pages.md).

navigation.py    docs/README.md -> the navigation
links.py         links of a page in the repository -> links of the same page in the site
dialect.py       GitHub's Markdown -> Python-Markdown's, and checks that no block is lost and nothing fetched
home.py          home.md, the README and the record of the benchmark -> the first page
reference.py     names of `tatami` -> a page each, from docstrings
docstrings.py    docstrings -> Markdown, an extension of mkdocstrings
hooks.py         the functions that MkDocs calls
"""
