//! Errors reach the right caller once, and the device stays usable: the same for every GPU
//! provider.

use warploom::kernel::Access::{Read, ReadWrite};
use warploom::provider::{Args, BufferRange, OpenOptions, Recording, Resource, Usage, Word};
use warploom_core::base::Dim;
use warploom_core::base::platform::block_on;

use crate::webgpu_host::*;

#[test]
fn stale_ids_are_errors() {
    on_each(OpenOptions::default(), |device| {
        let mut work = Recording { label: "stale".into(), ..Default::default() };
        let y = work.slot("y", 256);
        download(&mut work, part(y, 0, 256));
        let range = floats(&*device, &[1.0; 64]);
        let prepared = device.prepare(&work, &[Some(range)]).unwrap();
        let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
        device.free(Resource::Buffer(range.buffer));
        // Freed while in flight: the submit before still reads it.
        assert_eq!(to_floats(&block_on(device.wait(ticket)).unwrap().downloads[0]), [1.0; 64]);
        // The place is used again, by a buffer that the old id must not reach.
        let next = floats(&*device, &[9.0; 64]);
        assert_eq!(next.buffer.index, range.buffer.index);
        let errors = [
            device.write(range, &[0; 256]).unwrap_err(),
            device.prepare(&work, &[Some(range)]).unwrap_err(),
            device.submit(&[(prepared, Args::default())]).unwrap_err(),
            block_on(device.wait(ticket)).unwrap_err(),
        ];
        device.free(Resource::Prepared(prepared));
        let gone = device.submit(&[(prepared, Args::default())]).unwrap_err();
        for error in errors.iter().chain([&gone]) {
            assert!(error.is_invalid(), "{error}");
        }
        device.free(Resource::Buffer(range.buffer));
        assert_eq!(run(&*device, &work, &[Some(next)], Args::default()), [[9.0; 64]]);
    });
}

#[test]
fn the_budget_is_an_error_and_no_end() {
    on_each(OpenOptions { memory_budget: Some(1000), ..Default::default() }, |device| {
        let kept = device.alloc(600, Usage::State).unwrap();
        let error = device.alloc(401, Usage::Working).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        let text = error.to_string();
        assert!(text.contains("need 401") && text.contains("have 400"), "{text}");
        assert_works(&*device);
        device.free(Resource::Buffer(kept));
        assert_eq!(device.counters().allocated_bytes, 0);
        device.alloc(1000, Usage::Weights).unwrap();
    });
}

#[test]
fn too_large_a_buffer_is_out_of_memory() {
    on_each(OpenOptions::default(), |device| {
        for bytes in [u64::MAX, device.profile().max_buffer_bytes.saturating_add(4)] {
            let error = device.alloc(bytes, Usage::Weights).unwrap_err();
            assert!(error.is_out_of_memory(), "{error}");
        }
        assert!(device.alloc(0, Usage::Working).unwrap_err().is_invalid());
        assert_works(&*device);
    });
}

#[test]
fn kernels_that_do_not_compile_say_where() {
    on_each(OpenOptions::default(), |device| {
        let main = "@compute @workgroup_size(1) fn main() {";
        let cases = [
            ("parse", "fn main( {".to_owned(), 0),
            ("types", format!("{main}\n  let a: u32 = 1.5;\n }}"), 0),
            ("no_entry", "@compute @workgroup_size(1) fn other() {}".to_owned(), 0),
            (
                "layout",
                format!("@group(0) @binding(5) var<uniform> p: vec4<u32>; {main} let a = p.x; }}"),
                0,
            ),
            (
                "params_too_small",
                format!(
                    "@group(0) @binding(0) var<uniform> p: array<vec4<u32>, 4>; {main} let a = p[3].x; }}"
                ),
                4,
            ),
            ("workgroup", "@compute @workgroup_size(100000) fn main() {}".to_owned(), 0),
        ];
        for (name, wgsl, words) in cases {
            let spec = source(name, &wgsl, &[], words);
            let error = block_on(device.compile(&spec)).unwrap_err();
            assert!(error.is_compile() && error.to_string().contains(name), "{name}: {error}");
            if name == "types" {
                assert!(error.to_string().contains("2:"), "no line: {error}");
            }
        }
        let too_many = vec![ReadWrite; device.profile().max_storage_buffers as usize + 1];
        let many = source("many", "", &too_many, 0);
        assert!(block_on(device.compile(&many)).unwrap_err().is_unsupported());
        assert_eq!(device.counters().compiles, 0);
        assert_works(&*device);
    });
}

#[test]
fn recordings_that_are_wrong_are_refused() {
    on_each(OpenOptions::default(), |device| {
        // Offset of the next binding of the same buffer: some drivers need 512 bytes.
        let next = u64::from(device.profile().binding_alignment).max(256);
        let range = floats(&*device, &vec![0.0; next as usize / 4 + 64]);
        block_on(device.compile(&affine())).unwrap();
        let good = || {
            let mut work = Recording { label: "wrong".into(), ..Default::default() };
            let (x, y) = (work.slot("x", 256), work.slot("y", 256));
            let block = params(Word::Bits(64), 1.0, 0.0);
            dispatch(&mut work, affine(), block, &[(x, Read), (y, ReadWrite)], Dim::new(1));
            work
        };
        fn launch(work: &mut Recording) -> &mut warploom::provider::Dispatch {
            match &mut work.commands[0] {
                warploom::provider::Command::Dispatch(dispatch) => dispatch,
                _ => unreachable!("the first command is the dispatch"),
            }
        }
        type Change = fn(&mut Recording);
        let changes: [(&str, Change); 10] = [
            ("4 words of parameters", |w| w.params[0].0.truncate(0)),
            ("is not in the recording", |w| launch(w).kernel = 9),
            ("slot 7", |w| launch(w).bindings[0].slot = 7),
            ("has 2 bindings", |w| launch(w).bindings.truncate(1)),
            ("is Read", |w| launch(w).bindings[1].access = Read),
            ("past its end", |w| launch(w).bindings[1].bytes = 260),
            ("not a multiple of", |w| {
                launch(w).bindings[1].offset = 4;
                launch(w).bindings[1].bytes = 4;
            }),
            ("a dimension", |w| launch(w).grid[1] = Dim::new(1 << 40)),
            ("negative", |w| launch(w).grid[2] = Dim::new(-1)),
            ("whole words", |w| download(w, part(0, 2, 4))),
        ];
        let other = floats(&*device, &[0.0; 64]);
        let slots = [Some(BufferRange { bytes: 256, ..range }), Some(other)];
        device.prepare(&good(), &slots).unwrap();
        for (word, change) in changes {
            let mut work = good();
            change(&mut work);
            let error = device.prepare(&work, &slots).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(word), "{word}: {error}");
        }
        let same = [slots[0], Some(BufferRange { offset: next, bytes: 256, ..range })];
        let error = device.prepare(&good(), &same).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("share"), "{error}");
        assert!(device.prepare(&good(), &slots[..1]).unwrap_err().is_invalid());
    });
}
