"""A stand-in for the API server of Kubernetes, which uses simulated time.

``store`` contains the objects, ``patches`` changes them at the request of clients, ``api_server``
serves them to the program on the loopback interface, and ``program`` runs the program alongside the
simulation.
"""
