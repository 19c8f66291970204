# Two stages: one builds a virtual environment, the other holds it and nothing that builds.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv --without-pip /opt/katagami

# Dependencies by themselves: this layer is built again only when pyproject.toml changes.
COPY pyproject.toml ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > requirements.txt
RUN python -m pip --python /opt/katagami/bin/python install -r requirements.txt

COPY README.md LICENSE ./
COPY schemas_cache schemas_cache
COPY engine engine
COPY app app
RUN python -m pip --python /opt/katagami/bin/python install --no-deps .


FROM python:3.13-slim
RUN groupadd --gid 10001 katagami \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin katagami \
    && install --directory --owner 10001 --group 10001 /data /data/schemas /data/models
COPY --from=build /opt/katagami /opt/katagami
ENV PATH=/opt/katagami/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KATAGAMI_HOME=/data \
    KATAGAMI_HOST=0.0.0.0 \
    KATAGAMI_PORT=8000
WORKDIR /data
USER 10001:10001

# Compiled schemas, so that a restart is warm; and models: those that are pulled, with the base image's pip
# (KATAGAMI_MODEL=smollm2-135m-instruct), and your own (KATAGAMI_MODEL=/data/models/...).
VOLUME ["/data/schemas", "/data/models"]
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['KATAGAMI_PORT'] + '/health', timeout=2)"]
CMD ["katagami", "serve"]
