"""Parts of the loader of tiny documents: each UOp of a document as nodes, and the repair of operands that disagree."""
