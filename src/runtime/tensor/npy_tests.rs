use super::*;

fn cpu() -> Runtime {
    Runtime::builder().device("cpu").build().unwrap()
}

/// A file with a header and elements.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u16).to_le_bytes();
    [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
}

fn of_kind(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    file(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), data)
}

#[test]
fn each_type_comes_back() {
    let rt = cpu();
    let x = Tensor::from_vec(&rt, vec![1.5_f32, -2.0, f32::INFINITY, 0.0, 7.0, 1e-40], [2, 3]);
    let kinds = [
        x.clone(),
        x.cast(DType::F16),
        Tensor::from_vec(&rt, vec![i32::MIN, 5], [2]),
        Tensor::from_vec(&rt, vec![u32::MAX], ()),
        Tensor::from_vec(&rt, vec![true, false, true], [3, 1]),
        Tensor::zeros(&rt, [0, 4]),
    ];
    for x in kinds {
        let bytes = x.to_npy().unwrap();
        let start = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
        assert!(start.is_multiple_of(64), "elements begin at {start}");
        let y = Tensor::from_npy(&rt, &bytes).unwrap();
        assert_eq!((y.shape(), y.dtype()), (x.shape(), x.dtype()));
        assert_eq!(y.to_bytes().unwrap(), x.to_bytes().unwrap());
    }
    assert!(x.cast(DType::BF16).to_npy().unwrap_err().to_string().contains("bf16: cast"));
}

#[test]
fn numpys_own_bytes_are_read() {
    let rt = cpu();
    // numpy.save of arange(6, dtype='>i2').reshape(2, 3), of its Fortran order, and of a scalar.
    let big = of_kind(">i2", "(2, 3)", &[0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0xff, 0xfb]);
    let x = Tensor::from_npy(&rt, &big).unwrap();
    assert_eq!(x.to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, -5]);
    let text = "{\"descr\": \"|u1\", 'shape': (2,3), 'fortran_order': True}";
    let x = Tensor::from_npy(&rt, &file(text, &[0, 3, 1, 4, 2, 5])).unwrap();
    assert_eq!((x.shape(), x.to_vec::<u32>().unwrap()), (&[2, 3][..], vec![0, 1, 2, 3, 4, 5]));
    let x = Tensor::from_npy(&rt, &of_kind("<i8", "()", &7_i64.to_le_bytes())).unwrap();
    assert_eq!((x.shape(), x.item::<i32>().unwrap()), (&[][..], 7));
    // Version 2 has four bytes of length.
    let text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n";
    let two = [MAGIC, &[2, 0, text.len() as u8, 0, 0, 0], text, &1.0_f32.to_le_bytes()].concat();
    assert_eq!(Tensor::from_npy(&rt, &two).unwrap().to_vec::<f32>().unwrap(), [1.0]);
}

#[test]
fn wrong_files_are_refused_in_words() {
    let rt = cpu();
    let refused = |bytes: &[u8]| Tensor::from_npy(&rt, bytes).unwrap_err().to_string();
    for (bytes, want) in [
        (b"PK\x03\x04".to_vec(), "begins with [50, 4b, 03, 04]"),
        (Vec::new(), "begins with []"),
        ([MAGIC, &[9, 0, 0, 0]].concat(), "version 9"),
        ([MAGIC, &[1]].concat(), "ends after 7 bytes"),
        ([MAGIC, &[2, 0, 255, 255, 255, 255]].concat(), "a header of 4294967295 bytes, over 10000"),
        ([MAGIC, &[1, 0, 50, 0], b"{'descr'"].concat(), "of which 8 are there"),
        (file("{'descr': '<f4\u{e9}", &[]), "text without its end at byte 20"),
        (of_kind("<f8", "(1,)", &[0; 8]), ".astype(numpy.float32)"),
        (of_kind("<c8", "(1,)", &[0; 8]), "type \"<c8\""),
        (of_kind("|O", "(1,)", &[0; 8]), "type \"|O\""),
        (of_kind("<f4", "(3,)", &[0; 8]), "(3,) elements of \"<f4\" from byte 67 on in 75 bytes"),
        (of_kind("<f4", "(4294967296, 4294967296, 4)", &[]), "4294967296"),
        (of_kind("<f4", "(-1,)", &[]), "no size of an axis"),
        (of_kind("<f4", "(99999999999999999999,)", &[]), "no size of an axis"),
        (of_kind("<f4", &format!("({})", "1,".repeat(65)), &[]), "over 64 axes"),
        (of_kind("<i8", "(1,)", &i64::MAX.to_le_bytes()), "does not fit i32"),
        (of_kind("<u8", "(1,)", &u64::MAX.to_le_bytes()), "does not fit u32"),
        (file("{'shape': (1,), 'fortran_order': False}", &[0; 4]), "no key \"descr\""),
        (file("{'descr': [('a', '<f4')], 'shape': ()}", &[]), "no text in quotes"),
        (file("{'descr': '<f4', 'more': 1}", &[]), "unknown key \"more\""),
        (file("{'descr': '<f4', 'fortran_order': 1}", &[]), "neither True nor False"),
    ] {
        let error = refused(&bytes);
        assert!(error.contains(want), "{error}, not {want}");
    }
    // Every cut and every changed byte of a file is an error or a tensor, never a panic.
    let whole = Tensor::ones(&rt, [2, 2]).to_npy().unwrap();
    for at in 0..whole.len() {
        assert!(Tensor::from_npy(&rt, &whole[..at]).is_err(), "{at}");
        for byte in [0, b'9', b'(', b'\'', 0xff] {
            let mut changed = whole.clone();
            changed[at] = byte;
            let _ = Tensor::from_npy(&rt, &changed);
        }
    }
}
