"""PBS (OpenPBS, PBS Pro, Torque): accounting, queues and the configuration of sites."""
