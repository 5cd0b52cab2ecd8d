"""A server of one model, with the interface of OpenAI's: `tatami serve MODEL` (docs/language-models.md).

bodies.py      the JSON of a request, checked field by field
worker.py      the thread that owns the engine; requests are queued to it, text comes back
answers.py     the JSON of answers, whole and as events
metrics.py     counts for /metrics
app.py         routes, access, errors
"""
