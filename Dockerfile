# The Penstock image: operator, limiter and command line in one. Plain `docker build .` works.
#
# Order of the stages: what changes rarely comes first. A change of the code rebuilds the last two small layers only;
# a change of pyproject.toml that leaves the dependencies alone does not install them again.
#
# Where pip needs settings of its own (an index, a certificate), pass them as secrets; they are visible to the two `RUN`
# lines that install, and nothing of them is kept:
#   docker build --secret id=pip,src=$HOME/.config/pip/pip.conf --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt .
# pip.conf then names the certificate as `cert = /run/secrets/ca`.
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-bookworm

# --- What is to be installed, as two lists: from the extras of the image's processes, and for building the wheel: the
# backend, and a C compiler for the limiter's lanes (Python's slim images have none).
FROM ${PYTHON_IMAGE} AS requirements
COPY pyproject.toml /requirements/
RUN python3 -c "import tomllib; \
project = tomllib.load(open('/requirements/pyproject.toml', 'rb')); \
extras = project['project']['optional-dependencies']; \
runtime = project['project']['dependencies'] + [line for name in ('operator', 'limiter', 'store', 'download', 'cli') for line in extras[name]]; \
open('/requirements/runtime.txt', 'w').write('\n'.join(runtime)); \
open('/requirements/build.txt', 'w').write('\n'.join(project['build-system']['requires'] + project['dependency-groups']['native']))"

# --- The dependencies, in a virtual environment without pip.
FROM ${PYTHON_IMAGE} AS dependencies
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY --from=requirements /requirements/build.txt /requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca \
    python3 -m venv /tools && /tools/bin/pip install --quiet -r /requirements/build.txt
COPY constraints.txt /requirements/
COPY --from=requirements /requirements/runtime.txt /requirements/
# The Kubernetes client's generated models and calls are two thirds of all files here. It loads them when they are first
# named, and Penstock names none: it uses the client's configuration and HTTP session, with objects as dictionaries.
# Compiled files are checked by nothing at run time: the modification times they would be checked against change when
# layers are written.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca \
    python3 -m venv --without-pip /opt/penstock && \
    /tools/bin/pip --python /opt/penstock/bin/python install --quiet --no-compile --only-binary :all: \
        -c /requirements/constraints.txt -r /requirements/runtime.txt && \
    find /opt/penstock/bin ! -name 'python*' ! -type d -delete && \
    cd /opt/penstock/lib/python3*/site-packages && \
    for client in kubernetes/client kubernetes/aio/client; do \
        find $client/models $client/api -name '*.py' ! -name __init__.py -delete; \
    done && \
    find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + && \
    find . \( -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.pyi' \) -delete && \
    /opt/penstock/bin/python -m compileall -q --invalidation-mode unchecked-hash .

# --- Penstock itself, as a wheel installed into a tree of its own, and a look whether all of it loads.
FROM dependencies AS package
COPY pyproject.toml README.md LICENSE /source/
COPY hatch_build.py /source/
COPY scripts/native.py /source/scripts/
COPY operator /source/operator
RUN cd /source && /tools/bin/python -m hatchling build -t wheel -d /wheel > /dev/null && \
    /tools/bin/pip --python /opt/penstock/bin/python install --quiet --no-compile --no-warn-script-location --no-index --no-deps --root /package /wheel/*.whl && \
    /opt/penstock/bin/python -m compileall -q --invalidation-mode unchecked-hash /package/opt/penstock/lib && \
    cp -a /package/opt/penstock/. /opt/penstock/ && \
    /opt/penstock/bin/python -c "import importlib, pkgutil, select, penstock, penstock.limiter.nativelanes as native; \
native.NativeLanes(select.epoll()); \
[importlib.import_module(module.name) for module in pkgutil.walk_packages(penstock.__path__, 'penstock.') \
 if not module.name.endswith('__main__')]"

# --- The image: no pip, no build tools, a numeric user, and nothing that is written to at run time.
FROM ${PYTHON_IMAGE}
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/ensurepip /usr/local/lib/python3*/site-packages/pip* \
    /usr/lib/python3*/ensurepip /usr/share/python-wheels
COPY --from=dependencies /opt/penstock /opt/penstock
COPY --from=package /package/opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:/usr/local/bin:/usr/bin:/bin HOME=/ PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
LABEL org.opencontainers.image.title="Penstock" org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /
USER 65532:65532
ENTRYPOINT ["penstock"]
