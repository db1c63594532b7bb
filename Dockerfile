# A small image for the CPU. Without arguments, it runs the demo and leaves its report in runs/demo:
#   docker build --build-arg TORCH_INDEX=URL --tag cotransport .
#   docker run --volume "$PWD/runs:/home/learner/runs" cotransport
# TORCH_INDEX is the address of PyTorch's index of CPU wheels. Without it, the default index is used, whose wheels for
# Linux bring several gigabytes of CUDA libraries.
FROM python:3.12-slim AS wheel
COPY pyproject.toml MANIFEST.in README.md LICENSE /source/
COPY src /source/src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
ARG TORCH_INDEX=""
COPY constraints.txt /install/constraints.txt
RUN pip install --no-cache-dir --constraint /install/constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY --from=wheel /wheels /install/wheels
RUN pip install --no-cache-dir --constraint /install/constraints.txt /install/wheels/*.whl && rm -r /install/wheels
RUN useradd --create-home learner && mkdir /home/learner/runs && chown learner /home/learner/runs
USER learner
WORKDIR /home/learner
ENTRYPOINT ["cotransport"]
CMD ["run", "--out", "runs/demo", "--overwrite"]
