#!/usr/bin/env bash
# Builds the WebAssembly of the package: web/pkg has the engine and language models, web/pkg-full
# also tensors, kernel packs, checks of devices and whole tokenizer.json files. Needs Rust, and nothing else where
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

# Builds the module with some features; the file is the same for each set of them.
compile() {
  if [ "$road" = rustup ]; then
    cargo build -p warploom-web --target "$target" "${profile[@]}" "$@"
  else
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$lld" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
      /usr/bin/cargo build -p warploom-web --target "$target" "${profile[@]}" "$@" \
      -Zbuild-std=std,panic_abort
  fi
}
[ "$road" = rustup ] || CARGO_TARGET_DIR="$CARGO_TARGET_DIR/debian"

# The tool must be of exactly the library's version.
bindgen="$tools/bin/wasm-bindgen"
if ! [ -x "$bindgen" ] || [ "$("$bindgen" --version)" != "wasm-bindgen $bindgen_version" ]; then
  # It runs for a second: building it fast matters more than its speed.
  CARGO_TARGET_DIR="$tools/build" CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
    cargo install --root "$tools" --version "=$bindgen_version" --bin wasm-bindgen wasm-bindgen-cli
  rm -rf "$tools/build"
fi

# Builds a module into a folder, without the names of functions, a fifth of it. binaryen's wasm-opt is
# not used: its -Oz takes 5 % of the bytes away, but brotli packs what is left 5 % worse.
module() {
  local folder=$1
  shift
  compile "$@"
  rm -rf "$folder"
  "$bindgen" --target web --remove-name-section --remove-producers-section --out-dir "$folder" \
    "$CARGO_TARGET_DIR/$target/web/warploom_web.wasm"
}
module web/pkg
module web/pkg-full --features full
