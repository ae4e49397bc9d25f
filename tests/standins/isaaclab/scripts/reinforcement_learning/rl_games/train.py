"""The epoch is restored, and the limit is that of all epochs. The best model is saved too, without
an epoch in its name, and later than the last one."""

import os
import sys

sys.path.insert(0, os.getcwd())
import standin

SAVE_FREQUENCY = 10
args = standin.parse()
app = standin.App()
epochs = 40 if args.max_iterations is None else args.max_iterations
agent = f"params:\n  config:\n    name: ant\n    max_epochs: {epochs}\n"
run = standin.new_run("rl_games", "ant", agent=agent)
epoch = standin.load(args.checkpoint)["epoch"] if args.checkpoint else 0
while epoch < epochs:
    app.step()
    epoch += 1
    print(f"fps step: 1 epoch: {epoch}/{epochs}", flush=True)
    with open("logs/iterations", "a") as log:
        log.write(f"{epoch - 1}\n")
    if epoch % SAVE_FREQUENCY == 0 or epoch == epochs:
        name = f"last_ant_ep_{epoch}_rew__{100.5 - epoch}_.pth"
        standin.save(os.path.join(run, "nn", name), epoch=epoch)
        standin.save(os.path.join(run, "nn", "ant.pth"), epoch=epoch)
app.close()
