FROM python:3.12.12-slim-trixie AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/convserver
ENV PATH=/opt/convserver/bin:$PATH

# Before the code, so that a change of code installs nothing again.
COPY requirements/base.txt /src/requirements/
RUN pip install --require-hashes -r /src/requirements/base.txt
COPY . /src
RUN pip install --no-deps /src
# The base's SQLite can lose a commit. On amd64 the packages bring one that cannot; elsewhere the server warns.
RUN [ "$(uname -m)" != x86_64 ] || python -c "import convserver; \
from conversations.engines.sqlite3 import library; raise SystemExit(library.weakness())"


FROM python:3.12.12-slim-trixie
# For `convserver backup` and `convserver restore`: pg_dump and pg_restore, of 17 in this Debian; an older one
# than the server cannot dump it.
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-client \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /var/lib/convserver --create-home convserver \
    && install -d -m 700 -o convserver /backups
COPY --from=build /opt/convserver /opt/convserver

# HOST stays as it is: only accounts mode may listen on more than loopback, so whoever sets the one
# sets the other. Static files are served from the package and need no collecting.
ENV PATH=/opt/convserver/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CONVSERVER_DATA_DIR=/var/lib/convserver
USER convserver
WORKDIR /var/lib/convserver
VOLUME /var/lib/convserver
EXPOSE 8000

HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + (os.environ.get('PORT') or '8000') + '/health', timeout=4)"]
ENTRYPOINT ["convserver"]
CMD ["serve"]
