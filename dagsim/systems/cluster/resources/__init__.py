"""The nodes and their free resources, the rules of the site, and when nodes are available."""
