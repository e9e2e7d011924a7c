//! Any bytes as a GGUF file: refused with a reason, or read to the last byte.
#![no_main]

#[path = "../../tests/it/pure/gguf_exercise.rs"]
mod gguf_exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(gguf) = gguf_exercise::open(data.to_vec()) {
        gguf_exercise::read_all(&gguf);
    }
});
