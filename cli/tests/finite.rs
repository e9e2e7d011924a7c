//! A model file with a NaN: every way to choose tokens fails with a clear error.

#![cfg(feature = "embedded-model")]

use std::process::Command;

use warploom_models::gguf::Gguf;

/// The small model with a NaN in the weight of its last norm, so that no logit is finite.
fn spoiled() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");
    let mut file = std::fs::read(path).unwrap();
    let gguf = Gguf::from_bytes(file.clone(), "small").unwrap();
    let norm = gguf.tensor("output_norm.weight").unwrap();
    let factors = gguf.bytes(&norm).unwrap();
    let at: Vec<usize> = (0..file.len() - factors.len())
        .filter(|at| file[*at..].starts_with(&factors[..64]))
        .collect();
    assert_eq!(at.len(), 1, "places of the factors in the file");
    file[at[0] + 28..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    file
}

#[test]
fn logits_that_are_not_finite_end_generation_with_an_error() {
    let name = format!("warploom-finite-{}.gguf", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, spoiled()).unwrap();
    let ways: [&[&str]; 4] = [
        &["--temperature", "0", "--compute", "f32"],
        &["--temperature", "0", "--compute", "int8"],
        &["--temperature", "0.8", "--seed", "1"],
        &["--temperature", "0.8", "--repeat-penalty", "1.1"],
    ];
    for way in ways {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        command.args(["generate", "Once upon a time", "-n", "4", "--device", "cpu", "-m"]);
        let output = command.arg(&path).args(way).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{way:?}: {message}");
        assert!(output.stdout.is_empty(), "{way:?}: {:?}", output.stdout);
        assert!(
            message.contains("position ") && message.contains(" 0 is NaN"),
            "{way:?}: {message}"
        );
    }
    std::fs::remove_file(&path).unwrap();
}
