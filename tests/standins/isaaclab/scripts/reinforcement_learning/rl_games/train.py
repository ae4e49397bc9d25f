"""The epoch is restored, and the limit is that of all epochs, but one is always done. Nothing is
saved before an episode has ended. What is saved at the end is named a little differently, and the
best model is saved too, without an epoch in its name, and later than the last one."""

import os
import sys

sys.path.insert(0, os.getcwd())
import standin

SAVE_FREQUENCY, FIRST_EPISODE = 10, 4
parser = standin.parser()
parser.add_argument("--distributed", action="store_true", default=False)
parser.add_argument("--checkpoint", default=None)
parser.add_argument("--sigma", default=None)
parser.add_argument("--max_iterations", type=int, default=None)
args = standin.parse(parser)
app = standin.App()
epochs = 40 if args.max_iterations is None else args.max_iterations
if args.checkpoint and not os.path.isfile(args.checkpoint):
    raise FileNotFoundError("Unable to find the file: " + args.checkpoint)
run = standin.new_run("rl_games", "ant")
agent = f"params:\n  config:\n    name: ant\n    max_epochs: {epochs}\n"
standin.dump(run, agent=agent)
epoch = standin.load(args.checkpoint)["epoch"] if args.checkpoint else 0
begun, is_over = epoch, False
while not is_over:
    app.step()
    epoch += 1
    print(f"fps step: 1 epoch: {epoch}/{epochs}", flush=True)
    standin.count(epoch - 1)
    is_over = epoch >= epochs
    reward = epoch - 100.5 if epoch - begun >= FIRST_EPISODE else "-inf"
    if reward != "-inf" and epoch % SAVE_FREQUENCY == 0:
        name = f"last_ant_ep_{epoch}_rew_{reward}.pth"
        standin.save(os.path.join(run, "nn", name), epoch=epoch)
        standin.save(os.path.join(run, "nn", "ant.pth"), epoch=epoch)
    if is_over:
        name = f"last_ant_ep_{epoch}_rew__{reward}_.pth"
        standin.save(os.path.join(run, "nn", name), epoch=epoch)
app.close()
