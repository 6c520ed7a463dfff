# Tailrace's server, for any machine with containers, and for the containers of a deployment:
#   docker build -t tailrace .
#   docker run -p 4437:4437 -e TAILRACE_ACCESS=open -v tailrace:/data tailrace
# docs/containers.md says more. AWS's registry has the official image of Python without a limit of pulls.
ARG PYTHON=public.ecr.aws/docker/library/python:3.14-slim-trixie

FROM ${PYTHON} AS packages
COPY requirements/serve.txt /tmp/serve.txt
RUN pip install --no-cache-dir --no-compile --no-deps --only-binary=:all: --require-hashes \
    --target=/packages --requirement=/tmp/serve.txt
COPY scripts/trim_packages.py /tmp/trim_packages.py
RUN python /tmp/trim_packages.py /packages

FROM ${PYTHON}
COPY --from=packages /packages /opt/tailrace
COPY layers/core/python/tailrace /opt/tailrace/tailrace
RUN python -m compileall -q /opt/tailrace && install -d -o 10001 -g 10001 -m 700 /data
ENV PYTHONPATH=/opt/tailrace PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    TAILRACE_HOST=0.0.0.0 TAILRACE_PORT=4437 TAILRACE_DATA=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 4437
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:%s/health' % os.environ['TAILRACE_PORT'], timeout=4)"]
ENTRYPOINT ["python", "-m", "tailrace"]
CMD ["serve"]
