"""From syntax tree to frontend module: scopes, calls, arguments, expressions, constants."""
