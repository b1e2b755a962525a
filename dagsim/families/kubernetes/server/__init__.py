"""A stand-in for the API server of Kubernetes, whose clock is the simulation's.

``store`` holds the objects, ``patches`` changes them as clients ask, ``api_server`` serves them to
the program on loopback, and ``program`` runs the program beside the simulation.
"""
