#!/usr/bin/env bash
# Builds the web page's WebAssembly into web/pkg. Needs Rust, and nothing else where
# `rustup target add` works. Elsewhere (no wasm32 standard library to be had from rustup) it uses
# Debian's packages rustc-web, cargo-web and rust-web-src, and builds the standard library itself;
# `--debian` forces that road. The browser build has its own target folder, since it may use
# another compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

bindgen_version=0.2.130
target=wasm32-unknown-unknown
export CARGO_TARGET_DIR="${WEB_TARGET_DIR:-$PWD/target-web}"
tools="${WEB_TOOLS_DIR:-$PWD/.wasm-tools}"
profile=(--profile web)
# Every browser that can run the page has SIMD of 128 bits.
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128"

road=rustup
if [ "${1:-}" = --debian ]; then
  road=debian
elif ! command -v rustup > /dev/null || ! rustup target add "$target"; then
  road=debian
fi
echo "web: building with the $road toolchain"

if [ "$road" = rustup ]; then
  cargo build -p warploom-web --target "$target" "${profile[@]}"
else
  if ! [ -x /usr/bin/cargo ] || ! [ -d /usr/lib/rustlib/src/rust/library ]; then
    echo "web: install rustc-web cargo-web rust-web-src" >&2
    exit 1
  fi
  # Debian's compiler brings no wasm linker; the one inside another Rust's own folder will do.
  lld=$(find "$(rustc --print sysroot)" "$HOME" /usr/lib /opt -path '*/rustlib/*/bin/rust-lld' \
    -type f 2> /dev/null | head -n 1 || true)
  [ -n "$lld" ] || lld=$(command -v wasm-ld || true)
  [ -n "$lld" ] || { echo "web: no rust-lld and no wasm-ld found" >&2; exit 1; }
  export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$lld"
  CARGO_TARGET_DIR="$CARGO_TARGET_DIR/debian" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
    /usr/bin/cargo build -p warploom-web --target "$target" "${profile[@]}" \
    -Zbuild-std=std,panic_abort
  CARGO_TARGET_DIR="$CARGO_TARGET_DIR/debian"
fi

# The tool must be of exactly the library's version.
bindgen="$tools/bin/wasm-bindgen"
if ! [ -x "$bindgen" ] || [ "$("$bindgen" --version)" != "wasm-bindgen $bindgen_version" ]; then
  # It runs for a second: building it fast matters more than its speed.
  CARGO_TARGET_DIR="$tools/build" CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
    cargo install --root "$tools" --version "=$bindgen_version" --bin wasm-bindgen wasm-bindgen-cli
  rm -rf "$tools/build"
fi
rm -rf web/pkg
"$bindgen" --target web --out-dir web/pkg "$CARGO_TARGET_DIR/$target/web/warploom_web.wasm"

# For a release: wasm-opt of npm's package binaryen, which takes minutes.
wasm=web/pkg/warploom_web_bg.wasm
optimiser=web/package/node_modules/.bin/wasm-opt
if [ "${WEB_OPTIMIZE:-}" = 1 ]; then
  [ -x "$optimiser" ] || { echo "web: run npm install in web/package first" >&2; exit 1; }
  "$optimiser" -Oz --enable-simd --enable-bulk-memory --enable-nontrapping-float-to-int \
    --enable-sign-ext --enable-mutable-globals --enable-reference-types --enable-multivalue \
    "$wasm" -o "$wasm.small"
  mv "$wasm.small" "$wasm"
fi
echo "web: $(stat -c %s "$wasm") bytes of WebAssembly"
if command -v node > /dev/null; then
  node -e 'const { readFileSync } = require("node:fs"), zlib = require("node:zlib");
    const bytes = zlib.brotliCompressSync(readFileSync(process.argv[1])).length;
    console.log(`web: ${bytes} bytes with brotli`);' "$wasm"
fi
