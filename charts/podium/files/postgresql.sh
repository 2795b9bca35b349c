# Starts PostgreSQL; the first time it makes the cluster and the two databases.
# PGDATA appears whole or not at all, so a pod that is killed at its first start begins anew.
set -eu
# Where the cluster gives the namespace a user, that has no name, and initdb wants one. As the image's own start does.
if ! getent passwd "$(id -u)" > /dev/null; then
  for wrapper in /usr/lib/*/libnss_wrapper.so; do
    [ -e "$wrapper" ] || continue
    echo "postgres:x:$(id -u):$(id -g)::/tmp:/bin/false" > /tmp/passwd
    echo "postgres:x:$(id -g):" > /tmp/group
    export LD_PRELOAD="$wrapper" NSS_WRAPPER_PASSWD=/tmp/passwd NSS_WRAPPER_GROUP=/tmp/group
  done
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  rm -rf "$PGDATA.new"
  printf %s "$PODIUM_PASSWORD" > /tmp/password
  initdb --pgdata "$PGDATA.new" --username podium --pwfile /tmp/password --auth-host scram-sha-256 --auth-local trust --encoding UTF8 --locale C.UTF-8
  rm /tmp/password
  echo "host all all all scram-sha-256" >> "$PGDATA.new/pg_hba.conf"
  for database in podium_controller podium_registry; do
    echo "CREATE DATABASE $database" | postgres --single -j -D "$PGDATA.new" postgres
  done
  mv "$PGDATA.new" "$PGDATA"
fi
# The socket is in this container alone, whose environment has the password: to ask for it there would
# keep nobody out but `kubectl exec … pg_dump`. Older volumes do.
sed -i 's/^\(local .*\)scram-sha-256$/\1trust/' "$PGDATA/pg_hba.conf"
unset PODIUM_PASSWORD
exec postgres -D "$PGDATA" -c "listen_addresses=*" -c unix_socket_directories=/tmp
