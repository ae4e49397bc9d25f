"""The flags that only rsl_rl has."""


def add_rsl_rl_args(parser):
    parser.add_argument("--experiment_name", default=None)
    parser.add_argument("--run_name", default=None)
    parser.add_argument("--resume", action="store_true", default=False)
    parser.add_argument("--load_run", default=None)
    parser.add_argument("--checkpoint", default=None)
    parser.add_argument("--logger", choices={"wandb", "tensorboard", "neptune"}, default=None)
