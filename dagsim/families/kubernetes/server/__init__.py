"""A stand-in for the API server of Kubernetes; its clock is that of the simulation.

``store`` contains the objects, ``patches`` changes them at the request of clients, ``api_server``
serves them to the program on the loopback interface, and ``program`` runs the program alongside the
simulation.
"""
