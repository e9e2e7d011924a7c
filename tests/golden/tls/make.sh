#!/usr/bin/env bash
# The certificate of the tests of TLS, and the keys of two: for the name localhost, signed by itself.
# They protect nothing.
set -euo pipefail
cd "$(dirname "$0")"
make() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=localhost" \
    -addext "subjectAltName=DNS:localhost" -addext "basicConstraints=critical,CA:FALSE" -keyout "$1" -out "$2" 2>/dev/null
}
make localhost.key localhost.pem
make other.key /dev/null
