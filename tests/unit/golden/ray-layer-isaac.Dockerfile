# isaac-lab-base with Ray 2.55.1, for KubeRay: written by dray image build --ray.
FROM isaac-lab-base
USER root
SHELL ["/bin/sh", "-ec"]
# KubeRay starts Ray by bash, and asks by wget whether it is well.
RUN missing=; \
    for one in bash wget; do command -v $one >/dev/null || missing="$missing $one"; done; \
    if [ -z "$missing" ]; then exit 0; fi; \
    if command -v apt-get >/dev/null; then \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; \
        rm -rf /var/lib/apt/lists/*; \
    elif command -v dnf >/dev/null; then dnf install -y $missing; dnf clean all; \
    elif command -v microdnf >/dev/null; then microdnf install -y $missing; \
    elif command -v apk >/dev/null; then apk add --no-cache $missing; \
    else echo "the image lacks$missing, and has nothing to install that with" >&2; exit 1; fi
RUN /isaac-sim/python.sh -m pip --version >/dev/null 2>&1 || /isaac-sim/python.sh -m ensurepip; \
    PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore \
    /isaac-sim/python.sh -m pip install --no-cache-dir 'ray[default]==2.55.1' 'optuna' 'mlflow==3.1.0'
# By this Python, however that is started, and where a login shell finds it.
RUN python=$(command -v /isaac-sim/python.sh); \
    mkdir -p /usr/local/bin; \
    rm -f /usr/local/bin/ray; \
    printf '#!/bin/sh\nexec %s -m ray.scripts.scripts "$@"\n' "$python" >/usr/local/bin/ray; \
    chmod 755 /usr/local/bin/ray; \
    /usr/local/bin/ray --version
USER isaac:isaac
