//! The GGUF reader makes no allocation larger than the file.
//!
//! A separate binary, since a counting allocator counts for all its tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[path = "it/pure/gguf_bad.rs"]
mod gguf_bad;
#[path = "it/pure/gguf_exercise.rs"]
mod gguf_exercise;
#[path = "it/pure/gguf_mutate.rs"]
mod gguf_mutate;
#[path = "it/pure/gguf_writer.rs"]
mod gguf_writer;
#[path = "it/pure/model_bad.rs"]
mod model_bad;

/// Bytes that a refusal may allocate for its message, and an open file for its name and box.
const SMALL: usize = 1024;

struct Counting;

thread_local! {
    /// The largest allocation and the sum of all since the last reset, in bytes.
    static COUNTED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: usize) {
    // A thread may allocate after its locals are dropped; that is ignored.
    let _ = COUNTED.try_with(|counted| {
        let (largest, sum) = counted.get();
        counted.set((largest.max(bytes), sum.saturating_add(bytes)));
    });
}

// SAFETY: every call is the system allocator's, which keeps the contract; counting allocates not.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The largest allocation while opening and the sum of all, in bytes.
fn opening(bytes: Vec<u8>) -> (usize, usize) {
    COUNTED.set((0, 0));
    let result = warploom_models::gguf::Gguf::from_bytes(bytes, "counted.gguf");
    let counted = COUNTED.get();
    drop(result);
    counted
}

#[test]
fn the_count_sees_an_allocation() {
    COUNTED.set((0, 0));
    drop(std::hint::black_box(vec![1u8; 100_000]));
    assert_eq!(COUNTED.get(), (100_000, 100_000));
}

#[test]
fn bad_files_allocate_no_more_than_their_size() {
    for case in gguf_bad::all() {
        let len = case.bytes.len();
        let (largest, sum) = opening(case.bytes);
        let what = format!("{} ({} at byte {})", case.name, case.field, case.at);
        assert!(largest <= len + SMALL, "{what}: {largest} bytes for a file of {len}");
        assert!(sum <= 16 << 20, "{what}: {sum} bytes in all");
    }
}

#[test]
fn bad_models_allocate_no_more_than_their_size() {
    for case in model_bad::all() {
        let len = case.bytes.len();
        let file =
            warploom_models::gguf::Gguf::from_bytes(case.bytes, "counted.gguf").expect("a file");
        COUNTED.set((0, 0));
        let result = warploom_llm::Model::from_gguf(file);
        let (largest, sum) = COUNTED.get();
        assert!(result.is_err(), "{}", case.name);
        drop(result);
        assert!(largest <= len + SMALL, "{}: {largest} bytes for a file of {len}", case.name);
        assert!(sum <= 4 * len, "{}: {sum} bytes in all for a file of {len}", case.name);
    }
}

#[test]
fn mutated_files_allocate_no_more_than_their_size() {
    let mut mutator = gguf_mutate::Mutator::new(0x616c_6c6f);
    for i in 0..50_000 {
        let bytes = mutator.next();
        let len = bytes.len();
        let (largest, _) = opening(bytes);
        assert!(largest <= len + SMALL, "input {i}: {largest} bytes for a file of {len}");
    }
}

#[test]
fn files_of_the_smallest_entries_allocate_no_more_than_their_size() {
    use gguf_writer::{Meta, Writer};
    // The index is the reader's only table: worst where entries are smallest.
    let short = |i: u32| char::from_u32(0x100 + i).expect("a letter").to_string();
    let keys = (0..5000).fold(Writer::new(), |w, i| w.key(&short(i), Meta::U8(0)));
    let tensors =
        (0..2000).fold(Writer::new(), |w, i| w.raw_tensor(&short(i), &[], 24, vec![0; 1]));
    let strings = Writer::new().key("a", Meta::strings(vec![""; 100_000]));
    let bools = Writer::new().key("a", Meta::Array(7, vec![Meta::Bool(true); 100_000]));
    for writer in [keys, tensors, strings, bools] {
        let bytes = writer.write().bytes;
        let len = bytes.len();
        assert!(warploom_models::gguf::Gguf::from_bytes(bytes.clone(), "small.gguf").is_ok());
        let (largest, sum) = opening(bytes);
        assert!(largest <= len + SMALL, "{largest} bytes for a file of {len}");
        assert!(sum <= 4 * len + SMALL, "{sum} bytes in all for a file of {len}");
    }
}

#[test]
fn opening_does_not_copy_the_tensors() {
    use gguf_writer::Writer;
    let bytes = Writer::new().raw_tensor("a", &[100_000], 24, vec![0; 100_000]).write().bytes;
    let (_, sum) = opening(bytes);
    assert!(sum <= SMALL, "{sum} bytes for a head of less than 100");
}

#[test]
fn an_opened_file_is_read_within_its_size() {
    let bytes = gguf_writer::small().write().bytes;
    let len = bytes.len();
    let gguf = gguf_exercise::open(bytes).expect("a valid file");
    COUNTED.set((0, 0));
    gguf_exercise::read_all(&gguf);
    // Decoding to f32 is the test's own: 64 values of q8_0 take 256 bytes.
    assert!(COUNTED.get().0 <= len + SMALL);
}
