// KAI-scheduler's definitions, which the tests put on the API server: its programs are not built.
module dray.test/kai

go 1.25.0

require github.com/NVIDIA/KAI-scheduler v0.20.1
