"""PBS (OpenPBS, PBS Pro, Torque): its accounting, its queue and the configuration of its sites."""
