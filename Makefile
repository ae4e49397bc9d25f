# Every target does its own set-up: a fresh machine needs only Python 3.11 or newer, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-crowd test-slurm test-containers test-machines test-sessions test-hostile test-simulation simulate test-faults faults test-trainers test-sweeps test-ray bench-sweep bench-stopping bench-trials test-docker \
	kubernetes-alone kubernetes-rig test-kubernetes test-kubernetes-core test-kubernetes-long test-kuberay test-slurm-versions check bench docs clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	touch $@

demo: $(READY)  ## a real training run, interrupted and resumed
	$(BIN)/dray demo

APART := crowd or containers or machines or sessions or hostile or trainers or sweeps or docker or simulation or faults or kubernetes or ray or kuberay

test: $(READY) check  ## everything that must hold, against real components
	tests/rigs/install
	$(BIN)/pytest -n 4 --dist worksteal -m "not (slurm or $(APART))"
	$(MAKE) test-crowd

test-crowd: $(READY)  ## two hundred jobs at once
	tests/rigs/install
	$(BIN)/pytest -m crowd tests/integration

test-slurm: $(READY)  ## a real Slurm, which speaks PBS too
	tests/rigs/install
	$(BIN)/pytest -n 4 --dist worksteal -m "slurm and not ($(APART))" tests/contract tests/integration

test-containers: $(READY)  ## images, built and sent, and jobs in a real Apptainer
	tests/rigs/install docker-registry:docker-registry
	$(BIN)/pytest -n 4 --dist worksteal -m "containers and not docker" tests/integration tests/sessions

test-machines: $(READY)  ## machines without a scheduler, through a real sshd
	tests/rigs/install
	$(BIN)/pytest -n 4 --dist worksteal -m machines tests/contract tests/integration

test-sessions: $(READY)  ## into running jobs, over links that break
	tests/rigs/install
	tests/rigs/environment $(BIN)/python sessions
	$(BIN)/pytest -n 4 --dist worksteal -m "sessions and not kubernetes" tests/sessions

test-hostile: $(READY)  ## clusters, jobs and repositories that mean ill
	tests/rigs/install
	$(BIN)/pytest -n 4 --dist worksteal -m hostile

test-simulation: $(READY)  ## five thousand schedules of the node side, with faults at every operation
	$(BIN)/pytest -n 2 --dist worksteal -m simulation tests/simulation

SIMULATED = $(if $(SEED),$(SEED) --trace,--minutes=$(or $(MINUTES),1) --first=$(or $(FIRST),0)) \
	$(if $(KIND),--kind=$(KIND))

simulate: $(READY)  ## the same for MINUTES=1, from FIRST=0 on; or what happens in one, SEED=…
	$(BIN)/python -m tests.simulation $(SIMULATED)

test-trainers: $(READY)  ## the trainers people use, from PyPI, interrupted and resumed
	tests/rigs/install
	tests/rigs/environment $(BIN)/python trainers
	$(BIN)/pytest -n 2 --dist loadgroup -m trainers tests/trainers

test-sweeps: $(READY)  ## the real Optuna, MLflow and TensorBoard, from PyPI
	tests/rigs/environment $(BIN)/python sweeps
	$(BIN)/pytest -n 2 --dist loadgroup -m sweeps tests/sweeps

test-ray: $(READY)  ## a real Ray of three nodes, from PyPI; needs root
	tests/rigs/install ip:iproute2
	tests/rigs/environment $(BIN)/python ray
	$(BIN)/pytest -m ray tests/ray tests/contract

test-docker: $(READY)  ## images of a real docker daemon, in both its kinds of store; needs root
	tests/rigs/install
	$(BIN)/pytest -m docker tests/integration

kubernetes-alone: $(READY)
	tests/rigs/install ip:iproute2 docker-registry:docker-registry
	tests/rigs/kubernetes/build

kubernetes-rig: kubernetes-alone
	tests/rigs/kubernetes/addition kueue
	tests/rigs/kubernetes/addition kai

ON_KUBERNETES := -n 2 --dist loadgroup tests/kubernetes tests/contract tests/sessions
# The contract, interruptions, exactly once, and what goes wrong; nothing of Kueue's or KAI's.
CORE := tests/contract $(patsubst %,tests/kubernetes/test_%.py,interruptions exactly_once faults)

test-kubernetes: kubernetes-rig  ## a real Kubernetes of two nodes; built once with Go, for minutes; needs root
	$(BIN)/pytest $(ON_KUBERNETES) -m "kubernetes and not kubernetes_long"

test-kubernetes-core: kubernetes-alone  ## the part of it to try after every change there
	$(BIN)/pytest -n 2 --dist loadgroup $(CORE) -m "kubernetes and not kubernetes_long"

test-kubernetes-long: kubernetes-rig  ## the tests there that wait for long
	$(BIN)/pytest $(ON_KUBERNETES) -m kubernetes_long

test-kuberay: $(READY)  ## Ray clusters on that Kubernetes, by KubeRay's operator; built once with Go; needs root
	tests/rigs/install ip:iproute2
	tests/rigs/kubernetes/build
	tests/rigs/kubernetes/addition kuberay
	tests/rigs/kubernetes/ray-image $(BIN)/python
	$(BIN)/pytest -m kuberay tests/kubernetes

NAMED := tests/faults/test_points.py::test_point tests/faults/test_power_cuts.py::test_cut
ALL_POINTS := -n 2 --dist loadgroup --all-points tests/faults

test-faults: $(READY)  ## death, full and broken disks, power cuts: a sample of all points
	tests/rigs/install cc:gcc
	$(BIN)/pytest -n 2 --dist loadgroup -m faults tests/faults

faults: $(READY)  ## all of them, for hours; or one: make faults POINT=local:train:keeper:kill:17
	tests/rigs/install cc:gcc
	$(BIN)/pytest -m faults $(if $(POINT),--point=$(POINT) $(NAMED),$(ALL_POINTS))

test-slurm-versions: test-slurm-bullseye test-slurm-trixie  ## the same on Slurm 20.11 and 24.11

# On the Slurm and the Python of another Debian, in a chroot; needs root.
test-slurm-%: $(READY)
	tests/rigs/install debootstrap:debootstrap
	root=$$(tests/rigs/chroot $*) && chroot "$$root" slurmctld -V && \
	$(BIN)/pytest -n 4 --slurm-root="$$root" -k "(hpc or slurm or accounting) and not old_python" \
		tests/contract tests/integration/test_slurm.py tests/integration/test_accounting.py

check: $(READY)  ## lint, types, layers, Python 3.6 for the node side, 3.8 for trainers, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --target=3.6- --no-tips --violations src/dray/node
	$(BIN)/vermin --quiet --target=3.8- --no-tips --violations src/dray/training
	$(BIN)/vermin --quiet --target=3.6- --no-tips --violations src/dray/startup
	$(BIN)/python docs/generate.py --check

docs: $(READY)  ## write the reference from the code
	$(BIN)/python docs/generate.py

bench: $(READY)  ## measure; figures go to docs/explanation/performance.md
	tests/rigs/install
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m bench

bench-sweep: $(READY)  ## the sampler beside Optuna's; figures go to docs/explanation/sweeps.md
	PYTHONPATH=src:. $$(tests/rigs/environment $(BIN)/python sweeps)/bin/python -m bench.sweep $(SEEDS)

bench-stopping: $(READY)  ## early stopping at equal cost, simulated and with a real trainer
	$(BIN)/python -m bench.stopping
	$(BIN)/python -m bench.stopping_trainer $$(tests/rigs/environment $(BIN)/python trainers)/bin/python $(SEEDS)

bench-trials: $(READY)  ## what a trial costs beside a bare array and Ray Tune; needs root
	tests/rigs/install ip:iproute2
	$(BIN)/python -m compileall -q src
	ray=$$(tests/rigs/environment $(BIN)/python ray)/bin/python && \
	$$ray -m pip install --quiet "ray[tune]==$$($$ray -c "import ray; print(ray.__version__)")" && \
	$(BIN)/python -m bench.trials $$ray $(TRIALS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
