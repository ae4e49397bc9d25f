// KAI-scheduler, which the tests run beside Kubernetes: of versions of its own, hence a module of its
// own. Its v0.20.1 has a greater number, and is older.
module dray.test/kai

go 1.25.0

tool (
	github.com/NVIDIA/KAI-scheduler/cmd/admission
	github.com/NVIDIA/KAI-scheduler/cmd/binder
	github.com/NVIDIA/KAI-scheduler/cmd/podgrouper
	github.com/NVIDIA/KAI-scheduler/cmd/scheduler
)

require github.com/NVIDIA/KAI-scheduler v0.12.0
