"""Import real clusters from lists of nodes and from the configurations of their schedulers, and
anonymise logs.
"""
