//! Tests valid and invalid parts of split models.

use super::super::{Access, Value, Writer};
use super::*;
use warploom_core::base::Format;

/// Returns a part that has tensors with these names, each of 32 bytes with the value `fill`.
fn part(number: u16, count: u16, tensors: i32, names: &[&str], fill: u8) -> Vec<u8> {
    let mut file = Writer::new();
    if number == 0 {
        file.key("general.architecture", Value::String("test")).unwrap();
    }
    file.key(NUMBER, Value::U16(number)).unwrap();
    file.key(COUNT, Value::U16(count)).unwrap();
    file.key(TENSORS, Value::I32(tensors)).unwrap();
    names.iter().for_each(|name| file.tensor(name, &[8], Format::F32).unwrap());
    let mut out = file.begin(Vec::new()).unwrap();
    names.iter().for_each(|_| out.write(&[fill; 32]).unwrap());
    out.finish().unwrap()
}

/// Returns a model of three parts with five tensors in total.
fn model() -> [Vec<u8>; 3] {
    [part(0, 3, 5, &["a", "b"], 1), part(1, 3, 5, &["c", "d"], 2), part(2, 3, 5, &["e"], 3)]
}

fn named(number: usize, bytes: Vec<u8>) -> Gguf {
    Gguf::from_bytes(bytes, &format!("m-{number}")).unwrap()
}

fn join(parts: impl IntoIterator<Item = Vec<u8>>) -> Result<Gguf> {
    Gguf::join(parts.into_iter().enumerate().map(|(i, bytes)| named(i + 1, bytes)).collect())
}

#[test]
fn joined_parts_are_one_model() {
    let parts = model();
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let file = join(parts).unwrap();
    assert_eq!((file.tensor_count(), file.file_bytes()), (5, bytes));
    assert_eq!((file.split_count().unwrap(), file.is_whole().unwrap()), (3, true));
    assert_eq!(file.architecture().unwrap(), "test");
    let names: Vec<String> = file.tensors().map(|t| t.name().to_owned()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    for (name, fill) in [("b", 1), ("c", 2), ("e", 3)] {
        let tensor = file.tensor(name).unwrap();
        assert_eq!(file.bytes(&tensor).unwrap(), [fill; 32], "{name}");
        assert_eq!(file.weights(&tensor).unwrap()[..], [fill; 32], "{name}");
    }
    let [_, alone, _] = model();
    let alone = named(2, alone);
    assert!(!alone.is_whole().unwrap());
    let tensor = alone.tensor("c").unwrap();
    assert!(file.bytes(&tensor).unwrap_err().is_invalid());
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let [a, b, c] = model();
    type Row = (&'static str, Vec<Vec<u8>>, [&'static str; 2]);
    let rows: [Row; 11] = [
        ("the last is missing", vec![a.clone(), b.clone()], ["m-1", "split.count: 3 parts"]),
        ("one of them", vec![a.clone(), c.clone()], ["m-2", "split.no: 2"]),
        ("swapped", vec![a.clone(), c.clone(), b.clone()], ["m-2", "not part 2 of 3 of m-1"]),
        ("begins with another", vec![b.clone(), a.clone(), c.clone()], ["m-1", "split.no: 1"]),
        ("twice", vec![a.clone(), b.clone(), b.clone()], ["m-3", "split.no: 1"]),
        ("too many", [&model()[..], &[part(3, 4, 5, &["f"], 0)]].concat(), ["m-4", "count: 4"]),
        (
            "one of a model of as many parts",
            vec![a.clone(), part(1, 3, 6, &["c", "d"], 9), c.clone()],
            ["m-2", "split.tensors.count: 6, not 5"],
        ),
        (
            "a tensor that exists already",
            vec![a.clone(), part(1, 3, 5, &["c", "b"], 9), c.clone()],
            ["m-2", "tensor `b` at byte "],
        ),
        (
            "more tensors than said",
            vec![a.clone(), part(1, 3, 5, &["c", "d", "x"], 9), c.clone()],
            ["m-1", "split.tensors.count: 5, its 3 parts have 6"],
        ),
        (
            "no part",
            vec![a.clone(), Writer::new().begin(vec![]).unwrap().finish().unwrap()],
            ["m-2", "split.count: absent"],
        ),
        ("beyond the last", vec![part(3, 3, 5, &["a"], 0)], ["m-1", "split.no: 3 of 3"]),
    ];
    for (what, parts, words) in rows {
        let error = join(parts).expect_err(what);
        assert!(error.is_bad_file(), "{what}: {error:?}");
        assert!(error.to_string().starts_with(&format!("{}: ", words[0])), "{what}: {error}");
        assert!(error.to_string().contains(words[1]), "{what}: {error}");
    }
}

#[test]
fn the_first_file_brings_the_others() {
    let folder = std::env::temp_dir().join(format!("warploom-split-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |number: usize| folder.join(format!("m-{number:05}-of-00003.gguf"));
    for (i, bytes) in model().iter().enumerate() {
        std::fs::write(path(i + 1), bytes).unwrap();
    }
    for access in [Access::Copy, Access::Mmap] {
        let file = Gguf::open(path(1), access).unwrap();
        assert_eq!(file.bytes(&file.tensor("e").unwrap()).unwrap(), [3; 32]);
    }
    let refused = |path: std::path::PathBuf| Gguf::open(path, Access::Copy).unwrap_err();
    let error = refused(path(2)).to_string();
    assert!(error.contains("open the first") && error.contains("m-00001-of-00003"), "{error}");

    // File names that contradict the metadata.
    let other = folder.join("other.gguf");
    std::fs::copy(path(1), &other).unwrap();
    let error = refused(other).to_string();
    assert!(error.contains("must end in -00001-of-00003.gguf"), "{error}");
    let other = folder.join("m-00001-of-00002.gguf");
    std::fs::copy(path(1), &other).unwrap();
    let error = refused(other).to_string();
    assert!(error.contains("part 1 of 3, its name says 1 of 2"), "{error}");
    std::fs::copy(path(3), path(2)).unwrap();
    let error = refused(path(1)).to_string();
    assert!(error.contains("m-00002-of-00003.gguf: split.no: 2"), "{error}");
    std::fs::remove_file(path(2)).unwrap();
    let error = refused(path(1));
    assert!(error.to_string().contains("part 2 of 3"), "{error}");
    assert!(error.to_string().contains("m-00002-of-00003.gguf"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
