"""Search for hyper-parameters of a training run with Optuna, which stops poor trials early.

    pip install optuna
    python docs/examples/optuna_training.py    # takes a minute of CPU time; run folders are in results/optuna

A trial trains one agent for each seed. Its value is the mean of their best validation ratios."""

from pathlib import Path

import optuna

from dagsim import train

OUT, SEEDS, ITERATIONS, TRIALS = Path("results/optuna"), (1, 2), 6, 5
SHORT = ("workload=heterogeneous-dag", "workload.count=10", "train.algorithm.sequences=2", "train.validation_seeds=8")


def objective(trial):
    rate = trial.suggest_float("lr", 1e-4, 1e-2, log=True)
    longest = trial.suggest_float("discount_jcts", 0.5, 8.0, log=True)
    settings = [*SHORT, f"train.algorithm.lr={rate}", f"train.algorithm.discount_jcts=[0.5,{longest}]"]
    settings += [f"train.iterations={ITERATIONS}", "train.reference=sjf", "train.validate_every=1"]
    best = []
    for seed in SEEDS:

        def watch(progress, done=tuple(best)):  # called after each iteration; the training run ends if it returns True
            if progress.what == "training" and progress.ratio is not None:
                trial.report(sum((*done, progress.ratio)) / (len(done) + 1), len(done) * ITERATIONS + progress.done)
            return trial.should_prune()

        best.append(train(None, [*settings, f"seed={seed}"], out=OUT, report=False, watch=watch).validation_ratio)
        if trial.should_prune():
            raise optuna.TrialPruned
    return sum(best) / len(best)


def main():
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=ITERATIONS // 2)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1), pruner=pruner)
    study.optimize(objective, TRIALS)
    print(f"{study.best_value:.3f} times sjf on validation with {study.best_params}")


if __name__ == "__main__":
    main()
