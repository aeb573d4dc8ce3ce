# featurelab with all that it needs, in the tested versions.
#
#   docker build --tag featurelab .                                 CPU
#   docker build --tag featurelab:cuda --build-arg DEVICE=cuda .    CUDA, whose libraries come with torch's wheels
#   docker run --rm --volume $PWD/results:/results featurelab reproduce --headline
#
# docs/cluster.md shows it on Kubernetes.
FROM python:3.11-slim-bookworm
ARG DEVICE=cpu

# git: a run records the revision of its source. wget: KubeRay asks with it whether a node is well.
RUN apt-get update && apt-get install --yes --no-install-recommends git wget && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 ray && mkdir /results && chown ray /results

# dependencies first: this layer is rebuilt only if they change
WORKDIR /opt/featurelab
COPY constraints.txt ./
RUN case $DEVICE in cpu) from=https://download.pytorch.org/whl/cpu ;; cuda) from=https://pypi.org/simple ;; \
    *) echo "DEVICE is cpu or cuda, not $DEVICE" >&2; exit 2 ;; esac; \
    pip install --no-cache-dir --constraint constraints.txt --extra-index-url $from torch
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --editable '.[lab,public,lm,search,server]' \
    && git config --system --add safe.directory /opt/featurelab && featurelab list > /dev/null

USER ray
WORKDIR /results
ENTRYPOINT ["featurelab"]
CMD ["--help"]
