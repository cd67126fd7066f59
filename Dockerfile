# whorl with the demo as its command. Not built or run by the tests, which read it only.
#
#   docker build -t whorl .
#   docker run --rm -v whorl-cache:/cache -v "$PWD/runs:/runs" whorl
#
# With CUDA, on a machine whose driver and container toolkit let containers see the GPU; TAG is a runtime image on Ubuntu 24.04
# or later, whose Python is recent enough:
#
#   docker build -t whorl-cuda --build-arg BASE=nvidia/cuda:TAG .
#   docker run --rm --gpus all -v whorl-cache:/cache -v "$PWD/runs:/runs" whorl-cuda
#
# pip's default torch for Linux brings CUDA along, gigabytes of it. --build-arg TORCH_INDEX=URL takes torch and torchvision
# from another index, such as the one with builds for a CPU alone that pytorch.org names.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG TORCH_INDEX=""

# A base without Python 3.11 or later gets its distribution's.
RUN command -v python3 >/dev/null || { \
      apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*; \
    } \
 && python3 -c 'import sys; assert sys.version_info >= (3, 11), sys.version' \
 && python3 -m venv /venv

ENV PATH=/venv/bin:$PATH \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    WHORL_HOME=/cache

WORKDIR /source
COPY constraints.txt ./
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -c constraints.txt torch torchvision
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install -c constraints.txt .

# Weights and photographs are fetched on first use, into /cache; what is made goes to /runs.
RUN useradd --create-home whorl && mkdir -p /cache /runs && chown whorl /cache /runs
USER whorl
WORKDIR /
VOLUME ["/cache", "/runs"]
ENTRYPOINT ["whorl"]
CMD ["demo", "--out", "/runs/demo"]
