"""Everything an operator can see or do, as steps over the store. Admin and AsyncAdmin run them."""
