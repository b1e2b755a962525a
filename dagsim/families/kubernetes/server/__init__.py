"""A stand-in for the API server of Kubernetes, in simulated time.

``object_store`` contains the objects, and ``patches`` changes them when clients request it.
``api_resources`` lists their kinds. ``api_server`` serves them to the program on the loopback
interface. ``program`` runs the program next to the simulation, and ``metrics_page`` reads its
metrics.
"""
