//! Malformed GGUF files, one for each known way to break a reader.

use super::gguf_writer::{Meta, Writer, Written, ramp, small};
use warploom_core::base::Format;

/// A file that must be refused, naming `field` and the byte of that field.
pub(crate) struct Bad {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) field: &'static str,
    pub(crate) at: usize,
}

const U64_MAX: u64 = u64::MAX;

struct Cases(Vec<Bad>);

impl Cases {
    fn add(&mut self, name: &'static str, bytes: Vec<u8>, field: &'static str, at: usize) {
        self.0.push(Bad { name, bytes, field, at });
    }

    /// The small file with one field overwritten; the refusal is of `field`, at that place.
    fn patch(&mut self, name: &'static str, what: &str, value: &[u8], field: &'static str) {
        let file = small().write();
        let at = file.spot(what).at;
        self.add(name, file.patch(what, value).bytes, field, at);
    }

    /// A written file whose refusal is of `field`, at the place of `what`.
    fn file(&mut self, name: &'static str, file: Written, what: &str, field: &'static str) {
        let at = file.spot(what).at;
        self.add(name, file.bytes, field, at);
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Bad> {
    let mut cases = Cases(vec![]);
    headers(&mut cases);
    keys(&mut cases);
    arrays(&mut cases);
    alignments(&mut cases);
    tensor_entries(&mut cases);
    tensor_sizes(&mut cases);
    tensor_places(&mut cases);
    cases.0
}

fn headers(c: &mut Cases) {
    c.add("an empty file", vec![], "header: magic", 0);
    c.add("three bytes", b"GGU".to_vec(), "header: magic", 0);
    c.add("zeros", vec![0; 64], "header: magic", 0);
    c.add("magic alone", b"GGUF".to_vec(), "header: version", 4);
    c.add("no counts", b"GGUF\x03\0\0\0".to_vec(), "header: tensor count", 8);
    c.add("half a count", Writer::new().write().bytes[..20].to_vec(), "header: metadata count", 16);
    c.patch("an old ggml file", "magic", b"tjgg", "header: magic");
    c.patch("a zip archive", "magic", b"PK\x03\x04", "header: magic");
    c.patch("magic in lower case", "magic", b"gguf", "header: magic");
    for (name, version) in [
        ("version 0", 0u32),
        ("version 1", 1),
        ("version 4", 4),
        ("version 2^32 - 1", u32::MAX),
        ("big endian, version 2", 2u32.swap_bytes()),
        ("big endian, version 3", 3u32.swap_bytes()),
    ] {
        c.patch(name, "version", &version.to_le_bytes(), "header: version");
    }
    for (name, count) in [
        ("tensor count 2^32", 1u64 << 32),
        // Times the size of an entry, these wrap to something small.
        ("tensor count 2^61", 1 << 61),
        ("tensor count 2^63", 1 << 63),
        ("tensor count -1", U64_MAX),
    ] {
        c.patch(name, "tensor count", &count.to_le_bytes(), "header: tensor count");
    }
    for (name, count) in [
        ("metadata count 2^31", 1u64 << 31),
        ("metadata count 2^60", 1 << 60),
        ("metadata count 2^63", 1 << 63),
        ("metadata count -1", U64_MAX),
    ] {
        c.patch(name, "metadata count", &count.to_le_bytes(), "header: metadata count");
    }
    let file = small().write();
    let most = |least: usize, after: usize| ((file.bytes.len() - after) / least) as u64;
    let both = file
        .clone()
        .patch("tensor count", &most(25, 16).to_le_bytes())
        .patch("metadata count", &most(14, 24).to_le_bytes());
    c.file("counts that fit only one at a time", both, "tensor count", "tensor and metadata count");
    let one_more = file.clone().patch("tensor count", &3u64.to_le_bytes());
    c.add("a tensor too many", one_more.bytes, "tensor entry 2: tensor name", file.head_len);
}

fn keys(c: &mut Cases) {
    let small_len = small().write().bytes.len();
    let length = |what: &str| {
        let file = small().write();
        (small_len - file.spot(what).at - file.spot(what).len + 1) as u64
    };
    let entry_0 = "metadata entry 0: key";
    let text = small().write().spot("key 0 name").at;
    for (name, len) in [
        ("key length 2^64 - 1", U64_MAX),
        ("key length that wraps to its start", U64_MAX - 31),
        ("key length 2^63", 1 << 63),
        ("key length 2^32", 1 << 32),
        ("key one byte longer than the file", length("key 0 name length")),
        ("an empty key", 0),
    ] {
        let file = small().write().patch("key 0 name length", &len.to_le_bytes());
        let at = if len == 0 { text - 8 } else { text };
        c.add(name, file.bytes, entry_0, at);
    }
    c.patch("a key that is not UTF-8", "key 0 name", b"\xff\xfe", entry_0);
    let twice = small().key("test.count", Meta::U32(1)).write();
    c.file("a key twice", twice, "key 7 name length", "key");
    for (name, kind) in [("value type 13", 13u32), ("value type 2^32 - 1", u32::MAX)] {
        c.patch(name, "key 1 type", &kind.to_le_bytes(), "`test.count`: value type");
    }
    let value = "`general.architecture`: value";
    let text = small().write().spot("key 0 value").at;
    for (name, len) in [
        ("string length 2^64 - 1", U64_MAX),
        ("string length 2^63", 1 << 63),
        ("string one byte longer than the file", length("key 0 value length")),
    ] {
        let file = small().write().patch("key 0 value length", &len.to_le_bytes());
        c.add(name, file.bytes, value, text);
    }
    c.patch("a string that is not UTF-8", "key 0 value", b"\xc3\x28", value);
    c.patch("a string with a lone surrogate", "key 0 value", b"\xed\xa0\x80", value);
    c.patch("a bool of 2", "key 4 value", &[2], "`test.flag`: value");
    c.patch("a bool of 255 in an array", "key 5 value item 1", &[255], "`test.flags`: value");
}

fn arrays(c: &mut Cases) {
    c.patch("array item type 13", "key 3 value item type", &[13], "array item type");
    let file = small().write();
    let left = file.bytes.len() - file.spot("key 3 value item 0").at;
    for (name, len) in [
        ("an array of one item more than there is room for", left as u64 / 4 + 1),
        ("array of 2^63", 1u64 << 63),
        ("array of 2^64 - 1", U64_MAX),
        ("array of f32 that wraps to no bytes", 1 << 62),
        ("array of f32 that wraps to 12 bytes", (1 << 62) + 3),
    ] {
        c.patch(name, "key 3 value item count", &len.to_le_bytes(), "`test.scores`: array length");
    }
    for (name, len) in [("2^60 strings", 1u64 << 60), ("2^64 - 1 strings", U64_MAX)] {
        c.patch(name, "key 2 value item count", &len.to_le_bytes(), "`test.tokens`: array length");
    }
    let item = small().write().spot("key 2 value item 1").at;
    let long = small().write().patch("key 2 value item 1 length", &U64_MAX.to_le_bytes());
    c.add("a token of 2^64 - 1 bytes", long.bytes, "`test.tokens`: value", item);
    c.patch("a token that is not UTF-8", "key 2 value item 2", b"\xe9\x00", "value");

    // 43 bytes that keep a reader without limits busy forever.
    let endless = Writer::new().key("a", Meta::Raw(9, [&[0; 4][..], &[0xff; 8]].concat())).write();
    let at = endless.spot("key 0 value").at + 4;
    c.add("an endless array in a file of 49 bytes", endless.bytes, "array length", at);

    let nest = |depth: usize| {
        let level = [9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()].concat();
        let inner = [0u32.to_le_bytes().as_slice(), &0u64.to_le_bytes()].concat();
        Writer::new().key("deep", Meta::Raw(9, [level.repeat(depth), inner].concat())).write()
    };
    let start = nest(0).spot("key 0 value").at;
    c.add("arrays 5 deep", nest(4).bytes, "`deep`: array", start + 4 * 12);
    c.add("arrays 10,000 deep", nest(10_000).bytes, "`deep`: array", start + 4 * 12);
    c.patch("an inner array of type 200", "key 6 value item 1 item type", &[200], "item type");
    let inner = "key 6 value item 0 item count";
    c.patch("an inner array of 2^63", inner, &(1u64 << 63).to_le_bytes(), "array length");
}

fn alignments(c: &mut Cases) {
    let with = |value: Meta| small().key("general.alignment", value).write();
    let field = "`general.alignment`: value";
    for (name, n) in [
        ("alignment 0", 0u32),
        ("alignment 4", 4),
        ("alignment 7", 7),
        ("alignment 24", 24),
        ("alignment 131072", 1 << 17),
        ("alignment 2^31", 1 << 31),
        ("alignment 2^32 - 1", u32::MAX),
    ] {
        c.file(name, with(Meta::U32(n)), "key 7 value", field);
    }
    for (name, value) in [
        ("alignment of type u64", Meta::U64(32)),
        ("alignment of type i32", Meta::I32(32)),
        ("alignment of type bool", Meta::Bool(true)),
        ("alignment of type array", Meta::i32s([32])),
    ] {
        c.file(name, with(value), "key 7 type", "`general.alignment`: value type");
    }
    let text = with(Meta::Str("32".into()));
    c.file("alignment of type string", text, "key 7 type", "`general.alignment`: value type");
}

fn tensor_entries(c: &mut Cases) {
    let text = small().write().spot("tensor 0 name").at;
    for (name, len, at) in [
        ("tensor name length 2^64 - 1", U64_MAX, text),
        ("tensor name length 2^63", 1 << 63, text),
        ("tensor name longer than the file", 1 << 20, text),
        ("an empty tensor name", 0, text - 8),
    ] {
        let file = small().write().patch("tensor 0 name length", &len.to_le_bytes());
        c.add(name, file.bytes, "tensor entry 0: tensor name", at);
    }
    c.patch("a tensor name that is not UTF-8", "tensor 0 name", b"\x80", "tensor name");
    let twice = small().tensor("a.weight", &[1], Format::F32, &[0.0]).write();
    c.file("a tensor twice", twice, "tensor 2 name length", "tensor name");
    for (name, rank) in [("5 dimensions", 5u32), ("2^32 - 1 dimensions", u32::MAX)] {
        let field = "`a.weight`: dimension count";
        c.patch(name, "tensor 0 dimension count", &rank.to_le_bytes(), field);
    }
}

fn tensor_sizes(c: &mut Cases) {
    // b.weight is f32 [5, 4], 80 bytes; dimension 0 is the innermost, 4.
    let b = |inner: u64, outer: u64| {
        small()
            .write()
            .patch("tensor 1 dimension 0", &inner.to_le_bytes())
            .patch("tensor 1 dimension 1", &outer.to_le_bytes())
    };
    let field = "`b.weight`: dimension";
    c.file("a dimension of 0", b(0, 5), "tensor 1 dimension 0", field);
    c.file("a second dimension of 0", b(4, 0), "tensor 1 dimension 1", field);
    c.file("a dimension of 2^63", b(1 << 63, 1), "tensor 1 dimension 0", field);
    c.file("a dimension of -1", b(U64_MAX, 1), "tensor 1 dimension 0", field);
    c.file("a product of 2^63", b(1 << 31, 1 << 32), "tensor 1 dimension 1", field);
    c.file("a product that wraps to 0", b(1 << 32, 1 << 32), "tensor 1 dimension 1", field);
    // 3 * (20 / 3 mod 2^64) = 20, the right number of elements.
    let third = 0xAAAA_AAAA_AAAA_AAABu64.wrapping_mul(20);
    c.file("a product that wraps to the right one", b(3, third), "tensor 1 dimension 1", field);

    let field = "`b.weight`: tensor type";
    c.file("f32 of 2^62 elements, 0 bytes", b(1 << 62, 1), "tensor 1 type", field);
    // 2^64 + 80 bytes, 80 when wrapped.
    c.file("f32 whose bytes wrap to the right size", b((1 << 62) + 20, 1), "tensor 1 type", field);
    let f64s = b(1 << 61, 1).patch("tensor 1 type", &28u32.to_le_bytes());
    c.file("f64 of 2^61 elements", f64s, "tensor 1 type", field);
    let field = "`b.weight`: data offset";
    c.file("2^31 elements", b(1 << 31, 1), "tensor 1 offset", field);
    c.file("2^32 elements", b(1 << 16, 1 << 16), "tensor 1 offset", field);
    c.file("2^61 elements", b(1 << 61, 1), "tensor 1 offset", field);
    let q8_k = b(1 << 62, 1).patch("tensor 1 type", &15u32.to_le_bytes());
    c.file("q8_k of 2^62 elements", q8_k, "tensor 1 offset", field);
    c.file("a row too many", b(4, 6), "tensor 1 offset", field);
    let wider = small().write().patch("tensor 1 type", &28u32.to_le_bytes());
    c.file("a type of twice the size", wider, "tensor 1 offset", field);

    let field = "`a.weight`: tensor type";
    c.file(
        "a row of 33 in blocks of 32",
        small().write().patch("tensor 0 dimension 0", &33u64.to_le_bytes()),
        "tensor 0 type",
        field,
    );
    let q4_k = small().write().patch("tensor 0 type", &12u32.to_le_bytes());
    c.file("a row of 32 in blocks of 256", q4_k, "tensor 0 type", field);
    for (name, number) in [
        ("a row of 32 in blocks of q2_k", 10u32),
        ("a row of 32 in blocks of q3_k", 11),
        ("a row of 32 in blocks of q5_k", 13),
        ("a row of 32 in blocks of iq4_xs", 23),
        ("a row of 32 in blocks of tq1_0", 34),
        ("a row of 32 in blocks of tq2_0", 35),
        ("a row of 32 in blocks of i2_s", 36),
    ] {
        c.patch(name, "tensor 0 type", &number.to_le_bytes(), field);
    }
    for (name, number) in [("q5_0", 6u32), ("q5_1", 7), ("iq4_nl", 20), ("mxfp4", 39)] {
        let odd = small().write().patch("tensor 0 dimension 0", &48u64.to_le_bytes());
        let odd = odd.patch("tensor 0 type", &number.to_le_bytes());
        c.file(name, odd, "tensor 0 type", field);
    }
    // Whole blocks, and sizes that wrap: 2^62 weights of two bits fit, and so does the tail after
    // them.
    let i2_s = |inner: u64| {
        let file = Writer::new().raw_tensor("t", &[inner], 36, vec![0x55; 64]);
        file.write()
    };
    let short = Writer::new().raw_tensor("t", &[128], 36, vec![0x55; 63]).write();
    c.file("i2_s without the last byte of its tail", short, "tensor 0 offset", "`t`: data offset");
    c.file("i2_s of another block", i2_s(256), "tensor 0 offset", "`t`: data offset");
    c.file("i2_s of 2^62 weights", i2_s(1 << 62), "tensor 0 offset", "`t`: data offset");
    // BitNet's tl2, which has the number of mxfp4 and fewer bytes.
    let tl2 = Writer::new().raw_tensor("t", &[1, 128], 39, vec![0; 32]).write();
    c.file("tl2 as mxfp4", tl2, "tensor 0 offset", "`t`: data offset");
    // Whole blocks in all, but not in a row.
    let split = small()
        .write()
        .patch("tensor 0 dimension 0", &16u64.to_le_bytes())
        .patch("tensor 0 dimension 1", &4u64.to_le_bytes());
    c.file("blocks that span rows", split, "tensor 0 type", field);
}

fn tensor_places(c: &mut Cases) {
    let field = "`b.weight`: data offset";
    for (name, offset) in [
        ("an offset of no alignment", 97u64),
        ("an offset at the end", 192),
        ("an offset of 2^40", 1 << 40),
        ("an offset of 2^63", 1 << 63),
        ("an offset that wraps to the head", U64_MAX - 31),
        ("an offset that is another tensor's", 0),
        ("an offset inside another tensor", 64),
    ] {
        c.patch(name, "tensor 1 offset", &offset.to_le_bytes(), field);
    }
    // Bytes follow the last tensor, so that only the alignment is wrong.
    let mut half = small().write().patch("tensor 1 offset", &112u64.to_le_bytes());
    half.bytes.resize(half.bytes.len() + 64, 0);
    c.file("an offset of half an alignment", half, "tensor 1 offset", field);
    let file = small().write();
    let mut cut = file.bytes.clone();
    cut.pop();
    c.add("the last byte missing", cut, field, file.spot("tensor 1 offset").at);
    let cut = file.bytes[..file.head_len].to_vec();
    c.add("no data at all", cut, "`a.weight`: data offset", file.spot("tensor 0 offset").at);

    let unknown = |number: u32, data: Vec<u8>| small().raw_tensor("c", &[3], number, data).write();
    let past = unknown(99, vec![]);
    c.file("an unknown type past the end", past, "tensor 2 offset", "`c`: data offset");
    let inside = unknown(99, vec![0; 8]).patch("tensor 2 offset", &96u64.to_le_bytes());
    c.file("an unknown type on another tensor", inside, "tensor 2 offset", "`c`: data offset");
    let huge = Writer::new().tensor("a", &[8], Format::F32, &ramp(8)).alignment(1 << 16).write();
    let cut = huge.bytes[..1 << 16].to_vec();
    c.add("only padding", cut, "`a`: data offset", huge.spot("tensor 0 offset").at);
}
