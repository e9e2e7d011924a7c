#!/usr/bin/env bash
# Builds the WebAssembly of the package: web/pkg has the engine and language models, web/pkg-full
# also tensors, kernel packs, checks of devices and whole tokenizer.json files. Also builds the example
# of a Rust crate, examples/browser/pkg. Needs Rust, and nothing else where
# `rustup target add` works. Elsewhere (no wasm32 standard library to be had from rustup) it uses
# Debian's packages rustc-web, cargo-web and rust-web-src, and builds the standard library itself;
# `--debian` forces that road. The browser build has its own target folder, since it may use
# another compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

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

if [ "$road" = debian ]; then
  if ! [ -x /usr/bin/cargo ] || ! [ -d /usr/lib/rustlib/src/rust/library ]; then
    echo "web: install rustc-web cargo-web rust-web-src" >&2
    exit 1
  fi
  # Debian's compiler brings no wasm linker; the one inside another Rust's own folder will do.
  lld=$(find "$(rustc --print sysroot)" "$HOME" /usr/lib /opt -path '*/rustlib/*/bin/rust-lld' \
    -type f 2> /dev/null | head -n 1 || true)
  [ -n "$lld" ] || lld=$(command -v wasm-ld || true)
  [ -n "$lld" ] || { echo "web: no rust-lld and no wasm-ld found" >&2; exit 1; }
fi

# Builds a package with some features; the file is the same for each set of them.
compile() {
  if [ "$road" = rustup ]; then
    cargo build --target "$target" "${profile[@]}" "$@"
  else
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$lld" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
      /usr/bin/cargo build --target "$target" "${profile[@]}" "$@" \
      -Zbuild-std=std,panic_abort
  fi
}
[ "$road" = rustup ] || CARGO_TARGET_DIR="$CARGO_TARGET_DIR/debian"

# It must be of exactly the library's version; web/bindgen names it. Built on what the modules leave of
# the machine: their last step has one thread.
bindgen="$tools/release/warploom-bindgen"
CARGO_TARGET_DIR="$tools" nice cargo build --quiet --locked --release --manifest-path web/bindgen/Cargo.toml &
binding=$!

# Builds a module into a folder, without the names of functions, a fifth of it. binaryen's wasm-opt is
# not used: its -Oz takes 5 % of the bytes away, but brotli packs what is left 5 % worse.
module() {
  local folder=$1 package=$2
  shift 2
  compile -p "$package" "$@"
  wait "$binding"
  rm -rf "$folder"
  "$bindgen" "$CARGO_TARGET_DIR/$target/web/${package//-/_}.wasm" "$folder"
}
module web/pkg warploom-web
module web/pkg-full warploom-web --features full
module examples/browser/pkg warploom-example-browser
