import os

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import dray.training as t
from dray.training.sb3 import Callback

STEPS = 5000

start = t.resume_path()
env = make_vec_env("CartPole-v1")
if start:
    env = VecNormalize.load(os.environ["DRAY_CHECKPOINT_PARTNER"], env)
    model = PPO.load(start, env=env, device="cpu")
    assert env.obs_rms.count > model.num_timesteps, "not the statistics of this checkpoint"
else:
    model = PPO("MlpPolicy", VecNormalize(env), n_steps=128, device="cpu")
left = STEPS - model.num_timesteps
model.learn(left, callback=Callback(), reset_num_timesteps=False)
