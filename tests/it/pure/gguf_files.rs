//! The GGUF reader: files that must open, files that must not, and its errors.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use warploom_core::base::{DType, Format};
use warploom_core::quant;
use warploom_llm::Model;
use warploom_models::gguf::{Access, Gguf, Kind, Value};

use super::gguf_exercise::{Bytes, read_all, same};
use super::gguf_writer::{Meta, Writer, ramp, small};
use super::{gguf_bad, model_bad};

fn open(writer: &Writer) -> Gguf {
    let bytes = writer.write().bytes;
    let read = Gguf::from_reader(Bytes(bytes.clone()), "test.gguf").expect("a reader opens it");
    let file = Gguf::from_bytes(bytes, "test.gguf").expect("a valid file opens");
    same(&file, &read);
    file
}

#[test]
fn bad_files_are_refused_by_field_and_offset() {
    let cases = gguf_bad::all();
    assert!(cases.len() >= 60, "only {} bad files", cases.len());
    let mut wrong = vec![];
    for case in &cases {
        let start = Instant::now();
        let result = Gguf::from_bytes(case.bytes.clone(), "bad.gguf");
        let took = start.elapsed();
        let place = format!("{} at byte {}: ", case.field, case.at);
        let read = Gguf::from_reader(Bytes(case.bytes.clone()), "bad.gguf");
        let texts = [&result, &read].map(|opened| opened.as_ref().err().map(ToString::to_string));
        if texts[0] != texts[1] {
            wrong.push(format!("{}: through a reader {:?}", case.name, texts[1]));
        }
        match result {
            Ok(_) => wrong.push(format!("{}: it opened", case.name)),
            Err(e) if !e.is_bad_file() => wrong.push(format!("{}: {e:?}", case.name)),
            Err(e)
                if !(e.to_string().starts_with("bad.gguf: ") && e.to_string().contains(&place)) =>
            {
                wrong.push(format!("{}: wanted `{place}` in `{e}`", case.name));
            }
            Err(_) if took > Duration::from_millis(100) => {
                wrong.push(format!("{}: took {took:?}", case.name));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn bad_models_are_refused_by_file_and_field() {
    let open = |bytes: Vec<u8>| Model::from_gguf(Gguf::from_bytes(bytes, "bad.gguf").unwrap());
    if let Err(e) = open(model_bad::good()) {
        panic!("what all are made of does not open: {e}");
    }
    let cases = model_bad::all();
    assert!(cases.len() >= 50, "only {} bad models", cases.len());
    let mut wrong = vec![];
    for case in cases {
        match open(case.bytes) {
            Ok(_) => wrong.push(format!("{}: it opened", case.name)),
            Err(e) => {
                let text = e.to_string();
                let named = text.starts_with("bad.gguf: ") && text.contains(&case.field);
                if !e.is_bad_file() || !named || !text.contains(case.words) {
                    wrong.push(format!("{}: {e:?}", case.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = small().write().bytes;
    assert!(Gguf::from_bytes(whole.clone(), "whole.gguf").is_ok());
    for len in 0..whole.len() {
        let error = Gguf::from_bytes(whole[..len].to_vec(), "cut.gguf")
            .expect_err(&format!("cut at byte {len} it still opens"));
        let text = error.to_string();
        assert!(error.is_bad_file() && text.contains(" at byte "), "cut at {len}: {text}");
    }
}

#[test]
fn metadata_reads_as_written() {
    let gguf = open(
        &small()
            .key("n.u64", Meta::U64(1 << 40))
            .key("n.i8", Meta::I8(-5))
            .key("n.f64", Meta::F64(0.25))
            .key("n.f32", Meta::F32(1e-5))
            .key("n.widths", Meta::Array(3, vec![Meta::I16(-1), Meta::I16(300)])),
    );
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.architecture().unwrap(), "test");
    assert_eq!(gguf.get_u32("test.count").unwrap(), 7);
    assert_eq!(gguf.get_u64("n.u64").unwrap(), 1 << 40);
    assert_eq!(gguf.get_f32("n.f64").unwrap(), 0.25);
    assert_eq!(gguf.get_f32("n.f32").unwrap(), 1e-5);
    assert!(gguf.get_bool("test.flag").unwrap());
    assert_eq!(gguf.value("n.i8"), Some(Value::I8(-5)));
    let tokens: Vec<&str> = gguf.strings("test.tokens").unwrap().collect();
    assert_eq!(tokens, ["<s>", "", "é", "hello"]);
    assert_eq!(gguf.floats("test.scores").unwrap().collect::<Vec<_>>(), [0.5, -1.0, 2.0]);
    assert_eq!(gguf.integers("n.widths").unwrap().collect::<Vec<_>>(), [-1, 300]);

    let Some(Value::Array(deep)) = gguf.value("test.deep") else { panic!("no array") };
    assert_eq!((deep.kind(), deep.len()), (Kind::Array, 2));
    let Some(Value::Array(second)) = deep.items().nth(1) else { panic!("no inner array") };
    assert_eq!(second.items().collect::<Vec<_>>(), [Value::U8(3), Value::U8(4)]);

    let keys: Vec<&str> = gguf.metadata().map(|(key, _)| key).collect();
    assert_eq!(keys[..2], ["general.architecture", "test.count"]);
    assert_eq!(keys.len(), 12);
    assert_eq!(gguf.find_u32("no.such.key").unwrap(), None);
    assert!(gguf.find_strings("no.such.key").unwrap().is_none());
}

#[test]
fn wrong_types_are_errors_with_file_key_and_the_type_found() {
    let file = small()
        .key("minus", Meta::I32(-1))
        .key("large", Meta::U64(1 << 32))
        .key("huge", Meta::Array(10, vec![Meta::U64(u64::MAX)]));
    let at = |what: &str| file.write().spot(what).at;
    let gguf = open(&file);
    let text = |result: warploom::Result<()>| {
        let error = result.expect_err("a wrong type");
        assert!(error.is_bad_file(), "{error:?}");
        error.to_string()
    };
    let place = |key: &str, what: &str| {
        format!("test.gguf: metadata key `{key}`: value at byte {}", at(what))
    };

    let cases = [
        (gguf.get_u32("general.architecture").map(drop), "found string", "general.architecture", 0),
        (gguf.get_u32("minus").map(drop), "found i32 -1", "minus", 7),
        (gguf.get_u64("minus").map(drop), "at least 0, found i32 -1", "minus", 7),
        (gguf.get_u32("large").map(drop), "found u64 4294967296", "large", 8),
        (gguf.get_f32("test.count").map(drop), "f32 or f64, found u32 7", "test.count", 1),
        (gguf.get_bool("test.count").map(drop), "a bool, found u32 7", "test.count", 1),
        (gguf.get_str("test.tokens").map(drop), "found an array of 4 string", "test.tokens", 2),
        (gguf.strings("test.scores").map(drop), "found an array of 3 f32", "test.scores", 3),
        (gguf.strings("test.flag").map(drop), "found bool", "test.flag", 4),
        (gguf.floats("test.tokens").map(drop), "found an array of 4 string", "test.tokens", 2),
        (gguf.integers("test.scores").map(drop), "found an array of 3 f32", "test.scores", 3),
        (gguf.integers("huge").map(drop), "found an array of 1 u64", "huge", 9),
    ];
    for (result, found, key, number) in cases {
        let text = text(result);
        let place = place(key, &format!("key {number} type"));
        assert!(text.starts_with(&place) && text.contains(found), "{text}");
    }
    let missing = text(gguf.get_u32("llama.block_count").map(drop));
    assert_eq!(missing, "test.gguf: no metadata key `llama.block_count`");
    assert_eq!(text(gguf.tensor("c").map(drop)), "test.gguf: no tensor `c`");
}

#[test]
fn tensors_read_as_written() {
    let gguf = open(&small().tensor("scalar", &[], Format::F32, &[2.5]).tensor(
        "four",
        &[2, 1, 3, 5],
        Format::Plain(DType::BF16),
        &ramp(30),
    ));
    assert_eq!(gguf.tensor_count(), 4);
    let names: Vec<String> = gguf.tensors().map(|t| t.name().to_owned()).collect();
    assert_eq!(names, ["a.weight", "b.weight", "scalar", "four"]);
    assert_eq!(gguf.tensor_bytes(), 2 * 34 + 80 + 4 + 60);

    for (name, shape, format, want) in [
        ("b.weight", &[5u64, 4][..], Format::F32, ramp(20)),
        ("scalar", &[], Format::F32, vec![2.5]),
        ("four", &[2, 1, 3, 5], Format::Plain(DType::BF16), ramp(30)),
    ] {
        let info = gguf.tensor(name).expect("a tensor");
        assert_eq!((info.shape(), info.format().unwrap()), (shape, format), "{name}");
        let mut got = vec![f32::NAN; info.elements() as usize];
        quant::decode(format, gguf.bytes(&info).unwrap(), &mut got).expect("its bytes");
        assert_eq!(got, want, "{name}");
    }
    let other = open(&small());
    let error = other.bytes(&gguf.tensor("four").unwrap()).expect_err("another file's tensor");
    assert!(error.is_invalid(), "{error:?}");
}

#[test]
fn unusual_but_valid_files_open() {
    let deepest = (0..3).fold(Meta::Array(0, vec![]), |inner, _| Meta::Array(9, vec![inner]));
    let mut files = vec![
        ("nothing in it", Writer::new()),
        ("version 2", small().version(2)),
        ("metadata alone", Writer::new().key("a", Meta::U8(1))),
        ("tensors alone", Writer::new().tensor("a", &[1], Format::F32, &[1.0])),
        ("arrays 4 deep", Writer::new().key("deep", deepest)),
        ("an empty array of strings", small().key("none", Meta::Array(8, vec![]))),
        ("a key of 1,000 bytes", small().key(&"k".repeat(1000), Meta::U8(0))),
        ("a tensor name of 200 bytes", small().tensor(&"t".repeat(200), &[1], Format::F32, &[0.0])),
    ];
    files.extend([8, 16, 64, 4096, 65_536].map(|n| ("an alignment", small().alignment(n))));
    for (name, writer) in files {
        match Gguf::from_bytes(writer.write().bytes, "odd.gguf") {
            Ok(gguf) => drop(read_all(&gguf)),
            Err(error) => panic!("{name}: {error}"),
        }
    }

    // Data in another order than the entries, with a hole, and bytes after the end.
    let mut swapped = small()
        .write()
        .patch("tensor 0 offset", &128u64.to_le_bytes())
        .patch("tensor 1 offset", &0u64.to_le_bytes());
    swapped.bytes.resize(swapped.bytes.len() + 500, 7);
    assert_eq!(read_all(&Gguf::from_bytes(swapped.bytes, "swapped.gguf").unwrap()), 2);
}

#[test]
fn a_type_that_is_not_decoded_is_an_error_only_when_used() {
    let gguf = open(
        &Writer::new()
            .raw_tensor("small", &[256], 29, vec![0; 56])
            .raw_tensor("tl1", &[4], 38, vec![0; 5])
            .raw_tensor("later", &[7], 4321, vec![0; 5])
            .tensor("plain", &[4], Format::F32, &ramp(4)),
    );
    let small = gguf.tensor("small").unwrap();
    let error = small.format().expect_err("a type that is not decoded");
    assert!(error.is_unsupported(), "{error:?}");
    assert_eq!(
        error.to_string(),
        "test.gguf: tensor `small` has ggml type 29 (iq1_m), which is not supported"
    );
    assert_eq!(gguf.bytes(&small).unwrap().len(), 56);
    let tl1 = gguf.tensor("tl1").unwrap().format().expect_err("a type of another program");
    assert!(tl1.to_string().contains("type 38 (unknown)") && tl1.to_string().contains("BitNet"));

    let later = gguf.tensor("later").unwrap();
    assert_eq!((later.type_number(), later.type_name(), later.byte_len()), (4321, None, None));
    for error in [later.format().expect_err("unknown"), gguf.bytes(&later).expect_err("unknown")] {
        assert!(error.is_unsupported() && error.to_string().contains("4321 (unknown)"), "{error}");
    }
    assert_eq!(gguf.tensor("plain").unwrap().format().unwrap(), Format::F32);
}

#[test]
fn a_large_vocabulary_opens_at_once() {
    let tokens = Meta::strings((0..150_000).map(|i| format!("token {i}")));
    let bytes = small().key("tokenizer.ggml.tokens", tokens).write().bytes;
    let start = Instant::now();
    let gguf = Gguf::from_bytes(bytes, "vocabulary.gguf").unwrap();
    let strings = gguf.strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!((strings.len(), strings.last()), (150_000, Some("token 149999")));
    // Some 20 ms; the limit leaves room for a busy machine and fails for a quadratic reader.
    assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
}

/// A file of this test run in the system's temporary folder, removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("warploom-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a temporary file");
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn files_open_by_path() {
    let file = Temporary::new("open.gguf", &small().write().bytes);
    for access in [Access::Mmap, Access::Copy] {
        let gguf = Gguf::open(&file.0, access).expect("a valid file");
        assert_eq!(read_all(&gguf), 2);
        assert!(gguf.name().ends_with("open.gguf"));
    }
    let empty = Temporary::new("empty.gguf", &[]);
    for access in [Access::Mmap, Access::Copy] {
        let error = Gguf::open(&empty.0, access).expect_err("an empty file");
        assert!(error.is_bad_file() && error.to_string().contains("magic at byte 0"), "{error}");
        let error = Gguf::open(std::env::temp_dir(), access).expect_err("a folder");
        assert!(error.is_bad_file() && error.to_string().contains("regular file"), "{error}");
        let error = Gguf::open("/no/such/file.gguf", access).expect_err("a missing file");
        assert!(!error.is_bad_file() && error.to_string().contains("/no/such/file"), "{error}");
    }
}

#[test]
fn a_copy_outlives_its_file_and_checked_metadata_stays() {
    let bytes = small().write().bytes;
    let copied = Temporary::new("copied.gguf", &bytes);
    let gguf = Gguf::open(&copied.0, Access::Copy).unwrap();
    std::fs::write(&copied.0, b"gone").expect("overwriting");
    assert_eq!(read_all(&gguf), 2);
    assert_eq!(gguf.bytes(&gguf.tensor("b.weight").unwrap()).unwrap(), &bytes[bytes.len() - 80..]);

    // The same length, so that no page is missing; every byte differs.
    let mapped = Temporary::new("mapped.gguf", &bytes);
    let gguf = Gguf::open(&mapped.0, Access::Mmap).unwrap();
    let mut file = std::fs::OpenOptions::new().write(true).open(&mapped.0).expect("opening");
    file.write_all(&vec![0xff; bytes.len()]).expect("overwriting");
    assert_eq!(read_all(&gguf), 2);
    assert_eq!(gguf.strings("test.tokens").unwrap().last(), Some("hello"));
}

/// Folders that may contain models: ours, the one next to the repository, and those of a variable.
pub(crate) fn model_folders() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut folders = vec![root.join("models"), root.join("../shared/models")];
    let named = std::env::var_os("WARPLOOM_TEST_MODELS").unwrap_or_default();
    folders.extend(std::env::split_paths(&named));
    folders
}

/// A model of `models/` or of the folders that `WARPLOOM_TEST_MODELS` names.
pub(crate) fn find_model(name: &str) -> Option<PathBuf> {
    let inside = |folder: PathBuf| {
        let folders = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        std::iter::once(folder).chain(folders.map(|entry| entry.path())).collect::<Vec<_>>()
    };
    let places = model_folders().into_iter().flat_map(inside);
    places.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Same as `checksum` in `tests/golden/quant/make.py`.
fn checksum(values: &[f32]) -> u64 {
    let term = |(i, v): (usize, &f32)| (u64::from(v.to_bits()) + 1).wrapping_mul(2 * i as u64 + 1);
    values.iter().enumerate().map(term).fold(0, u64::wrapping_add)
}

#[test]
fn real_models_decode_to_the_reference_values() {
    let golden: Json =
        serde_json::from_str(include_str!("../../golden/quant/models.json")).unwrap();
    let mut checked = 0;
    for (name, tensors) in golden.as_object().expect("a table of files") {
        let Some(path) = find_model(name) else {
            crate::skip(
                crate::Need::Models,
                &format!("{name} is not in models/ or WARPLOOM_TEST_MODELS"),
            );
            continue;
        };
        let gguf = Gguf::open(&path, Access::Mmap).expect("a real model opens");
        for (tensor, row) in tensors.as_object().expect("a table of tensors") {
            let info = gguf.tensor(tensor).expect("a tensor of the model");
            assert_eq!(u64::from(info.type_number()), row[0].as_u64().expect("a type"));
            let mut values = vec![f32::NAN; info.elements() as usize];
            let weights = gguf.weights(&info).unwrap();
            quant::decode(info.format().unwrap(), &weights, &mut values).unwrap();
            let got = format!("{:016x}", checksum(&values));
            assert_eq!(Some(got.as_str()), row[1].as_str(), "{name}: {tensor}");
            checked += 1;
        }
    }
    assert!(checked >= 74, "only {checked} tensors were there; models/ holds 74");
}

#[test]
fn the_embedded_model_says_what_its_card_says() {
    let bytes: &'static [u8] = include_bytes!("../../../models/warploom-tiny-llama-Q4_K_M.gguf");
    let gguf = Gguf::from_bytes(bytes, "embedded").expect("our own model");
    assert_eq!(gguf.architecture().unwrap(), "llama");
    assert_eq!(gguf.get_u32("llama.block_count").unwrap(), 8);
    assert_eq!(gguf.get_u32("llama.embedding_length").unwrap(), 256);
    assert_eq!(gguf.get_u32("llama.attention.head_count_kv").unwrap(), 4);
    assert_eq!(gguf.get_f32("llama.attention.layer_norm_rms_epsilon").unwrap(), 1e-5);
    assert_eq!(gguf.strings("tokenizer.ggml.tokens").unwrap().len(), 4096);
    assert_eq!(gguf.tensors().map(|t| t.elements()).sum::<u64>(), 7_344_384);
    assert_eq!(gguf.tensor("token_embd.weight").unwrap().shape(), [4096, 256]);
    assert_eq!(gguf.tensor("blk.0.ffn_down.weight").unwrap().shape(), [256, 768]);
}
