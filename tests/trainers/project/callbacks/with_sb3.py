import gymnasium
from stable_baselines3 import PPO

import dray.training as t
from dray.training.sb3 import Callback

STEPS = 5000

start = t.resume_path()
env = gymnasium.make("CartPole-v1")
if start:
    model = PPO.load(start, env=env, device="cpu")
else:
    model = PPO("MlpPolicy", env, n_steps=128, device="cpu")
left = STEPS - model.num_timesteps
model.learn(left, callback=Callback(), reset_num_timesteps=False)
