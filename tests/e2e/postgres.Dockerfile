# PostgreSQL with the official image's user and path, for clusters that cannot pull that one.
FROM python:3.11-slim-bookworm
RUN groupadd --gid 999 postgres && useradd --uid 999 --gid postgres --no-create-home postgres \
 && apt-get update \
 && apt-get install -y --no-install-recommends postgresql-15 \
 && rm -rf /var/lib/apt/lists/*
ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin
USER 999:999
# As the official image: SIGTERM would wait for every client to leave.
STOPSIGNAL SIGINT
