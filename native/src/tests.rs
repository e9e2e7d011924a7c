//! Tests how recordings are checked and evaluated, and how kernels are checked against their
//! declared interfaces; no driver is needed.

use super::{Argument, Buffers, Program, Target};
use warploom_core::base::{Dim, Symbol, SymbolValues};
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{Callee, CheckedRecording, ResolvedCommand};
use warploom_hal::{
    Args, Binding, BufferRange, Command, DeviceProfile, Dispatch, ParamBlock, Recording, SlotRange,
    UploadSource, Usage, Word,
};
use warploom_kernels::Access::{Read, ReadWrite};
use warploom_kernels::{Access, AssetSpec, KernelSpec, SourceSpec};
use warploom_ledger::{Need, skip};

const N: Symbol = Symbol::new("n");
#[cfg(feature = "cuda")]
const TARGET: Target = Target::Cuda;
#[cfg(not(feature = "cuda"))]
const TARGET: Target = Target::OpenCl(warploom_wgsl::translate::Subgroups::Refused);

const ADD: &str = "
    struct P { n: u32, step: u32, a: u32, b: u32 }
    @group(0) @binding(0) var<uniform> p: P;
    @group(0) @binding(1) var<storage, read> x: array<u32>;
    @group(0) @binding(2) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = x[id.x] + p.n + p.step; }";

fn source(wgsl: &str, bindings: &[Access], param_words: u32) -> KernelSpec {
    KernelSpec::Source(SourceSpec {
        name: "k".into(),
        wgsl: wgsl.into(),
        entry: "main".into(),
        bindings: bindings.to_vec(),
        param_words,
        constants: Default::default(),
        twins: Vec::new(),
    })
}

fn profile() -> DeviceProfile {
    DeviceProfile::webgpu_floor("test").with(|p| p.has_timestamps = true)
}

fn program(spec: &KernelSpec) -> Result<Program> {
    Program::translate(spec, &profile(), TARGET)
}

fn part(slot: u32, offset: impl Into<Dim>, bytes: impl Into<Dim>) -> SlotRange {
    SlotRange { slot, offset: offset.into(), bytes: bytes.into() }
}

/// Builds a recording: x and y of 1,024 bytes each, two launches over n elements, and one of every
/// other command.
fn recording() -> Recording {
    let mut work = Recording { label: "test".into(), ..Recording::default() };
    let (x, y) = (work.slot("x", 1024), work.slot("y", 1024));
    let n = Dim::symbol(N);
    let kernel = work.kernel(source(ADD, &[Read, ReadWrite], 4));
    for block in [vec![Word::Bits(7), Word::Bits(8)], vec![Word::dim(&n).unwrap(), Word::Bits(9)]] {
        let params = work.param_block(ParamBlock(block));
        let bind = |slot, access| Binding { slot, offset: 0, bytes: 1024, access };
        work.commands.push(Command::Dispatch(Dispatch {
            kernel,
            params,
            bindings: [bind(x, Read), bind(y, ReadWrite)].into_iter().collect(),
            grid: [n.ceil_div(&Dim::new(64)), Dim::new(1), Dim::new(1)],
            label: "add".into(),
        }));
    }
    let bytes = n * Dim::new(4);
    work.commands.push(Command::Upload { to: part(x, 0, 8), source: UploadSource::Arg(0) });
    work.commands.push(Command::Copy { from: part(x, 0, 4), to: part(x, 4, 4) });
    work.commands.push(Command::Clear { range: part(y, bytes.clone(), 4) });
    work.commands.push(Command::Timestamp);
    work.commands.push(Command::Download { from: part(y, 0, bytes) });
    work
}

struct Bench {
    buffers: Buffers<&'static str>,
    x: BufferRange,
    y: BufferRange,
}

fn bench() -> Bench {
    let mut buffers = Buffers::new("test:0".into(), None, 1 << 20);
    buffers.admit(1536, Usage::Working).unwrap();
    let x = BufferRange { buffer: buffers.insert("x", 1536), offset: 256, bytes: 1024 };
    let y = BufferRange { buffer: buffers.insert("y", 1024), offset: 0, bytes: 1024 };
    Bench { buffers, x, y }
}

fn check(work: &Recording, on: &Bench, slots: &[Option<BufferRange>]) -> Result<CheckedRecording> {
    let programs: Vec<Program> = work.kernels.iter().map(program).collect::<Result<_>>()?;
    let programs: Vec<&Program> = programs.iter().collect();
    CheckedRecording::check(work, &programs, &profile(), &on.buffers, slots)
}

fn args(n: u64) -> Args {
    let symbols = SymbolValues::new().with(N, n);
    Args { symbols, uploads: vec![vec![1, 2, 3, 4, 5, 6, 7]], ..Args::default() }
}

#[test]
fn commands_come_with_their_numbers() {
    let on = bench();
    let work = check(&recording(), &on, &[Some(on.x), Some(on.y)]).unwrap();
    // The constant block, then the changing one, at multiples of the alignment.
    let params = work.params().to_vec();
    assert_eq!((params.len(), params[0], params[4], params[260]), (272, 7, 8, 9));
    assert_eq!(work.launches().map(|l| l.params).collect::<Vec<_>>(), [Some(0), Some(256)]);
    for n in [1u32, 65, 0] {
        let args = args(u64::from(n));
        let run = work.evaluate(&on.buffers, &args).unwrap();
        let (at, changed) = run.changed(&work);
        assert_eq!((at, changed.len(), &changed[..4]), (256, 16, &n.to_le_bytes()[..]));
        let mut seen = Vec::new();
        for todo in work.commands(&run, &args) {
            seen.push(match todo {
                ResolvedCommand::Launch { launch, grid } => {
                    let places = launch.bindings.iter().map(|b| run.range_of(b));
                    assert_eq!(places.collect::<Vec<_>>(), [on.x, on.y]);
                    format!("launch {} {grid:?}", launch.index)
                }
                ResolvedCommand::Upload { to, bytes } => {
                    format!("upload {} {}", to.offset, bytes.len())
                }
                ResolvedCommand::Copy { from, to } => format!("copy {} {}", from.offset, to.offset),
                ResolvedCommand::Clear { range } => {
                    format!("clear {} {}", range.offset, range.bytes)
                }
                ResolvedCommand::Download { from } => {
                    format!("download {} {}", from.offset, from.bytes)
                }
                ResolvedCommand::Timestamp => "timestamp".into(),
            });
        }
        let groups = n.div_ceil(64);
        let want = [
            format!("launch 0 [{groups}, 1, 1]"),
            format!("launch 1 [{groups}, 1, 1]"),
            "upload 256 7".into(),
            "copy 256 260".into(),
            format!("clear {} 4", 4 * n),
            "timestamp".into(),
            format!("download 0 {}", 4 * n),
        ];
        assert_eq!(seen, want);
    }
}

#[test]
fn a_launch_passes_what_the_kernel_takes() {
    let on = bench();
    let recording = recording();
    let program = program(&recording.kernels[0]).unwrap();
    let all = [Argument::Params, Argument::Storage(0), Argument::Storage(1)];
    assert_eq!(program.arguments[..], all);
    let work = check(&recording, &on, &[Some(on.x), Some(on.y)]).unwrap();
    let launch = work.launches().next().unwrap();
    // Checked indices use the lengths of both arrays.
    assert_eq!(program.lengths(launch)[..], [256, 256]);
}

#[test]
fn open_slots_are_checked_at_each_submit() {
    let mut on = bench();
    let mut work = check(&recording(), &on, &[None, Some(on.y)]).unwrap();
    let with = |buffers: Vec<(u32, BufferRange)>| Args { buffers, ..args(1) };
    let fault = |work: &mut CheckedRecording, on: &Bench, buffers| {
        work.evaluate(&on.buffers, &with(buffers)).map(|_| ()).unwrap_err().to_string()
    };
    work.evaluate(&on.buffers, &with(vec![(0, on.x)])).map(|_| ()).unwrap();
    let short = BufferRange { offset: 4, bytes: 1020, ..on.x };
    let odd = BufferRange { offset: 128, ..on.x };
    for (buffers, words) in [
        (vec![], "open slot \"x\" has no buffer"),
        (vec![(1, on.x)], "slot 1 was not left open"),
        (vec![(9, on.x)], "slot 9 was not left open"),
        (vec![(0, on.y)], "share"),
        (vec![(0, short)], "needs 1024 bytes"),
        (vec![(0, odd)], "dispatch \"add\": binding 0 starts at byte 128"),
    ] {
        let text = fault(&mut work, &on, buffers);
        assert!(text.contains(words) && text.contains("recording \"test\""), "{text}");
    }
    let mut bound = check(&recording(), &on, &[Some(on.x), Some(on.y)]).unwrap();
    assert!(fault(&mut bound, &on, vec![(0, on.x)]).contains("was bound in prepare"));
    on.buffers.remove(on.y.buffer);
    let text = fault(&mut work, &on, vec![(0, on.x)]);
    assert!(text.contains("not a live buffer"), "{text}");
}

#[test]
fn what_changes_is_checked_before_anything_runs() {
    let on = bench();
    let work = check(&recording(), &on, &[Some(on.x), Some(on.y)]).unwrap();
    let fault = |args: Args| {
        let error: Error = work.evaluate(&on.buffers, &args).map(|_| ()).unwrap_err();
        assert!(error.is_invalid(), "{error}");
        error.to_string()
    };
    assert!(fault(Args::default()).contains("symbol n"));
    assert!(fault(args(256)).contains("slot \"y\""));
    assert!(fault(args(64 * 5_000_000)).contains("dispatch \"add\": a grid of 5000000 x 1 x 1"));
    assert!(fault(Args { uploads: vec![], ..args(1) }).contains("upload 0 is missing"));
    assert!(fault(Args { uploads: vec![vec![0; 9]], ..args(1) }).contains("got 9"));
}

#[test]
fn recordings_that_no_submit_could_run_are_refused() {
    let on = bench();
    let slots = [Some(on.x), Some(on.y)];
    let fault = |change: &dyn Fn(&mut Recording)| {
        let mut work = recording();
        change(&mut work);
        check(&work, &on, &slots).map(|_| ()).unwrap_err().to_string()
    };
    fn first(work: &mut Recording) -> &mut Dispatch {
        match &mut work.commands[0] {
            Command::Dispatch(dispatch) => dispatch,
            _ => unreachable!("the first command is a dispatch"),
        }
    }
    let overlap = Command::Copy { from: part(0, 0, 8), to: part(0, 4, 8) };
    type Change<'a> = &'a dyn Fn(&mut Recording);
    let rows: [(Change<'_>, &str); 8] = [
        (&|work| first(work).kernel = 3, "kernel 3 is not in the recording"),
        (&|work| first(work).params = 3, "takes 4 words of parameters, block 3 has 0"),
        (&|work| first(work).bindings.truncate(1), "has 2 bindings, the dispatch 1"),
        (&|work| first(work).bindings[1].access = Read, "kernel k has ReadWrite"),
        (&|work| first(work).bindings[1].bytes = 1028, "of slot \"y\" (1024 bytes)"),
        (&|work| first(work).bindings[0].bytes = 0, "binding 0 covers 0 bytes"),
        (&|work| first(work).bindings[0].slot = 2, "slot 2 is not among the 2"),
        (&|work| first(work).grid = [1, 70_000, 1].map(Dim::new), "a grid of 1 x 70000 x 1"),
    ];
    for (change, words) in rows {
        let text = fault(change);
        let is_first = text.contains("recording \"test\": command 0, \"add\"");
        assert!(is_first && text.contains(words), "{text}");
    }
    let mut work = recording();
    work.commands.push(overlap);
    let text = check(&work, &on, &slots).unwrap().evaluate(&on.buffers, &args(1));
    assert!(text.map(|_| ()).unwrap_err().to_string().contains("overlaps"));
    let text = check(&recording(), &on, &slots[..1]).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("has 2 slots, 1 were given"), "{text}");
}

#[test]
fn kernels_must_be_what_their_specs_declare() {
    let with = |from: &str, to: &str| ADD.replace(from, to);
    let both = [Read, ReadWrite];
    let rows = [
        (source(ADD, &[Read, Read], 4), "@binding(2) is ReadWrite"),
        (source(ADD, &[Read], 4), "@binding(2) is ReadWrite"),
        (source(ADD, &both, 0), "declared with 0 words"),
        (source(&with("b: u32 }", "b: u32, c: vec4<u32> }"), &both, 4), "block has 32 bytes"),
        (source(&with("binding(0) var<uniform>", "binding(4) var<uniform>"), &both, 4), "Uniform"),
        (source(&with("@workgroup_size(64)", "@workgroup_size(512)"), &both, 4), "512 threads"),
        (source(&with("p.step; }", "p.stop; }"), &both, 4), "stop"),
        (source(&with("fn main", "fn other"), &both, 4), "no compute entry point \"main\""),
    ];
    for (spec, words) in rows {
        let text = program(&spec).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("kernel k") && text.contains(words), "{words}: {text}");
    }
    let fixed = with("read> x: array<u32>", "read> x: array<u32, 512>");
    let mut work = recording();
    work.kernels[0] = source(&fixed, &both, 4);
    let on = bench();
    let text = check(&work, &on, &[Some(on.x), Some(on.y)]).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("covers 1024 bytes") && text.contains("take 2048"), "{text}");
    let f16 = KernelSpec::Asset(AssetSpec::new("matvec_q4_0").define("subgroup"));
    assert!(program(&f16).map(|_| ()).unwrap_err().is_unsupported());
}

/// Profilers show kernels by these names.
#[test]
fn a_text_names_its_kernel() {
    let rows = [
        (KernelSpec::Asset(AssetSpec::new("matvec_q4_k")), "kernel_matvec_q4_k"),
        (source(ADD, &[Read, ReadWrite], 4), "kernel_k"),
    ];
    for (spec, name) in rows {
        let found = program(&spec).unwrap().translated;
        assert_eq!(found.entry, name);
        assert!(found.text.contains(&format!(" {name}(")), "{}", found.text);
    }
}

/// A native source replaces only the text: the launch interface is that of the shader.
#[cfg(feature = "cuda")]
#[test]
fn a_twin_is_compiled_in_the_place_of_the_translation() {
    use warploom_core::ir::{Twin, TwinLanguage};
    let own = "\
struct P { unsigned n, step, a, b; };
extern \"C\" __global__ void __launch_bounds__(WORKGROUP_X) kernel_main(
    const P* p, const unsigned* x, unsigned* y) {
    const unsigned i = blockIdx.x * WORKGROUP_X + threadIdx.x;
    y[i] = x[i] + p->n + p->step;
}
";
    let twin = |text: &str| {
        let KernelSpec::Source(mut spec) = source(ADD, &[Read, ReadWrite], 4) else {
            panic!("a source is one")
        };
        let (language, file) = (TwinLanguage::Cuda, "add.cu".to_string());
        spec.twins = vec![Twin { language, file, text: text.into() }];
        program(&KernelSpec::Source(spec)).unwrap()
    };
    let found = twin(own);
    let storage = [Argument::Params, Argument::Storage(0), Argument::Storage(1)];
    assert_eq!((&found.arguments[..], &found.translated.entry[..]), (&storage[..], "kernel_main"));
    assert!(found.translated.lengths.is_empty() && found.translated.workgroup_size == [64, 1, 1]);
    assert!(found.translated.text.contains(own) && found.least_bytes(1) == 4);

    let nvrtc = match super::cuda::Nvrtc::open() {
        Ok(nvrtc) => nvrtc,
        Err(why) => {
            return skip(Need::Nvrtc, &why.to_string());
        }
    };
    let compile = |text: &str| nvrtc.compile(&twin(text).translated.text, "sm_90");
    compile(own).unwrap();
    compile(include_str!("../../examples/packs/softmax/softmax.cu")).unwrap();
    for (from, to, words) in [
        ("p->step", "p->stop", "add.cu(5): error"),
        ("unsigned* y", "unsigned y", "kernel_main takes 3 pointers: one to the uniform block"),
        (", unsigned* y) {", ") { unsigned y[1];", "kernel_main takes 3 pointers"),
    ] {
        let error = compile(&own.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(words), "{to}: {error}");
    }
}
