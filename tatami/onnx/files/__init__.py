"""A model's file as it is: definitions, tensors, external data, order of nodes, repairs and refusals."""
