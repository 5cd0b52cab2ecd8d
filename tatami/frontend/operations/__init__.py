"""Operations by family: attributes, operands, type rule, and the conditions on sizes.

`frontend.ops` joins the families into the table `OPS`.
"""
