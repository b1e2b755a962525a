"""The learning family and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "agents that learn to schedule: environments, codecs, rewards, nets and training",
    uses=("compiled", "episodes"),
    adds={
        "systems": (
            Entry("mixture", ".mixture:MixtureScenario", "a different GPU cluster with different jobs for every seed"),
        ),
        "lists": (
            Entry("nets", ".nets:NETS", "net"),
            Entry("algorithms", ".algorithms:ALGORITHMS", "algorithm"),
            Entry("advantages", ".advantages:ADVANTAGES", "advantage estimator"),
        ),
        "codecs": (
            Entry(
                "candidates",
                ".codecs.codec:CandidatesConfig",
                "pairs of a ready task and a GPU type on which it fits, and waiting",
            ),
            Entry(
                "relative",
                ".codecs.codec:RelativeConfig",
                "the same choices without units, for any cluster and workload",
            ),
        ),
        "rewards": (
            Entry("job_seconds", ".cluster_rewards:JobSeconds", "seconds that all jobs spend in the system"),
            Entry(
                "shaped_job_seconds",
                ".cluster_rewards:ShapedJobSeconds",
                "job_seconds minus critical paths, charged in advance",
            ),
            Entry(
                "weighted_job_seconds",
                ".cluster_rewards:WeightedJobSeconds",
                "job_seconds multiplied by the weights of jobs",
            ),
            Entry(
                "bounded_stretch",
                ".cluster_rewards:BoundedStretch",
                "completion time divided by ideal time, at least 1",
            ),
            Entry(
                "makespan", ".cluster_rewards:Makespan", "seconds from the first arrival until the last job has left"
            ),
            Entry(
                "idle",
                ".cluster_rewards:IdleGpuSeconds",
                "fraction of GPUs that are idle while jobs are in the system, over time",
            ),
            Entry("energy", ".cluster_rewards:Joules", "energy consumed by all GPUs"),
            Entry(
                "lost_gpu_seconds", ".cluster_rewards:LostGpuSeconds", "set-up and lost work of stopped and moved runs"
            ),
            Entry("rejections", ".cluster_rewards:Rejections", "number of jobs that the policy rejected"),
            Entry("unfairness", ".cluster_rewards:Unfairness", "1 - Jain's index over tenants, over time"),
        ),
        "compiled_sources": (
            Entry("pool", "codecs/pool.py", "sums over the queue"),
            Entry("candidates", "codecs/candidates.py", "columns of the codec"),
            Entry("relative", "codecs/relative.py", "columns of the codec"),
        ),
        "services": (
            Entry("training_defaults", ".training.train_section:section_for"),
            Entry("training_filled", ".training.train_section:for_system"),
            Entry("agent", ".agents:agent_of"),
            Entry("names_of_agents", ".agents:agent_names"),
            Entry("newest_agent", ".agents:newest_agent"),
            Entry("algorithm_of", ".agents:algorithm_of"),
            Entry("shipped_agent", ".agents:shipped_agent"),
            Entry("shipped_agents", ".agents:shipped_agents"),
            Entry("ray_rollouts", ".training.ray_rollouts:RayRollouts"),
            Entry("training_events", ".training.learner:writer"),
            Entry("training_caveats", ".training_caveats:caveats"),
            Entry("training_sweep", ".training.train_sweep:training_sweep"),
        ),
        "public": (
            Entry("make_env", ".environments.make_env:make_env"),
            Entry("make_sb3_env", ".environments.sb3_env:make_sb3_env"),
            Entry("make_torchrl_env", ".environments.torchrl_env:make_torchrl_env"),
            Entry("make_vector_env", ".environments.make_env:make_vector_env"),
            Entry("record_episodes", ".environments.data_set:record_episodes"),
            Entry("train", ".training.session:train"),
        ),
        "loaders": (
            Entry("agent", ".agents:agent_of", "an agent of any algorithm, from its file"),
            Entry("sb3", ".agents:agent_of", "a model of Stable-Baselines3, from its file"),
        ),
        "algorithms": (
            Entry("ppo", ".on_policy:PpoConfig", "proximal policy optimisation on whole episodes"),
            Entry("reinforce", ".on_policy:ReinforceConfig", "the policy gradient with input-dependent baselines"),
            Entry("d3qn", ".off_policy:D3qnConfig", "duelling double deep Q-learning with prioritised n-step replay"),
            Entry("rainbow", ".off_policy:RainbowConfig", "d3qn with distributions of returns and noisy layers"),
            Entry("sac", ".off_policy:SacConfig", "discrete soft actor-critic"),
        ),
        "keys": (Entry("train", ".training.train_config:TrainConfig", "how dagsim train trains an agent"),),
        "kept_by_command": (Entry("train", ".command:train_agent", "training run"),),
        "policies": (
            Entry(
                "believing",
                ".believing:Believing",
                "another policy, which sees expected durations where durations are hidden",
                ("estimates", "costly"),
            ),
        ),
        "environments": (Entry("cluster", ".environments.scheduling_env:SchedulingEnv", id="dagsim/Scheduling-v0"),),
        "agents": (Entry("ppo", "ppo.pt", "trained on the default experiment", ("cluster",)),),
    },
    commands={"train": ".command"},
)
