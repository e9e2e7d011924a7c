//! Kernels as CUDA C and OpenCL C: the texts, refused constructs, and compilation.
//!
//! `UPDATE_GOLDEN=1` rewrites the golden texts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use warploom::kernel::catalogue::reads_ahead;
use warploom::kernel::source::{asset_wgsl, cooperative_variants, variants};
use warploom::kernel::{AssetSpec, KernelSpec};
use warploom_kernels::codegen::fused_wgsl;
use warploom_native::cuda::Nvrtc;
use warploom_wgsl::translate::{self, Bounds, Options, Subgroups, Translated};

use crate::devices;
use crate::fused_exprs::{elementwise, rows};
use crate::opencl_host::{self, Host};
use crate::semantics::{Case, POISON, cases};
use crate::{Need, skip, tell};

/// Architectures that CUDA text is compiled for.
const ARCHITECTURES: [&str; 3] = ["sm_75", "sm_90a", "sm_120"];

fn with_subgroups(subgroups: Subgroups) -> Options {
    Options { subgroups, ..Options::default() }
}

fn cuda(name: &str, wgsl: &str, options: &Options) -> Translated {
    let (module, info) = translate::parse(wgsl).unwrap_or_else(|e| panic!("{name}: {e}"));
    translate::cuda(&module, &info, options).unwrap_or_else(|e| panic!("{name}: {e}\n{wgsl}"))
}

fn opencl(name: &str, wgsl: &str, options: &Options) -> Translated {
    let (module, info) = translate::parse(wgsl).unwrap_or_else(|e| panic!("{name}: {e}"));
    translate::opencl(&module, &info, options).unwrap_or_else(|e| panic!("{name}: {e}\n{wgsl}"))
}

/// The OpenCL device, if there is one; else reports that there is none.
fn host() -> Option<Host> {
    match opencl_host::open() {
        Ok(host) => {
            tell(&format!("opencl: {}", host.name));
            Some(host)
        }
        Err(why) => {
            skip(Need::OpenCl, &format!("opencl: {why}"));
            None
        }
    }
}

/// NVIDIA's compiler. `None` if there is none, which fails the test if `WARPLOOM_REQUIRE` lists `nvrtc`.
pub(crate) fn compiler() -> Option<&'static Nvrtc> {
    match Nvrtc::open() {
        Ok(nvrtc) => Some(nvrtc),
        Err(why) => {
            skip(Need::Nvrtc, &format!("nvrtc: {why}"));
            None
        }
    }
}

/// The buffers of a case in the order of the bindings.
fn buffers(case: &Case) -> Vec<Vec<u32>> {
    let x = if case.x.is_empty() { vec![0] } else { case.x.clone() };
    let mut all = vec![x, vec![POISON; case.expected.len()]];
    if !case.params.is_empty() {
        all.insert(0, case.params.clone());
    }
    all
}

#[test]
fn opencl_means_what_wgsl_means() {
    let Some(host) = host() else { return };
    let mut wrong = Vec::new();
    for (turn, case) in cases().into_iter().enumerate() {
        // Both ways of indexing, in turn.
        let bounds = [Bounds::Restrict, Bounds::Unchecked][turn % 2];
        let options = Options { bounds, ..with_subgroups(Subgroups::WorkgroupMemory) };
        let work = opencl(&case.name, &case.wgsl, &options);
        let all = buffers(&case);
        // A kernel that does not read x has no binding for it.
        let place =
            |b: &translate::Binding| b.binding as usize - usize::from(case.params.is_empty());
        let used: Vec<Vec<u32>> = work.bindings.iter().map(|b| all[place(b)].clone()).collect();
        match host.run(&work, &used, case.groups) {
            Ok(found) => wrong.extend(case.difference(found.last().map_or(&[][..], |y| y))),
            Err(e) => wrong.push(format!("{}: {e}\n{}", case.name, work.text)),
        }
    }
    assert!(wrong.is_empty(), "{} of the table:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn cuda_text_of_the_table_compiles() {
    let Some(nvrtc) = compiler() else { return };
    for case in cases() {
        let work = cuda(&case.name, &case.wgsl, &Options::default());
        for architecture in ARCHITECTURES {
            if let Err(log) = nvrtc.compile(&work.text, architecture) {
                panic!("{} for {architecture}: {log}\n{}", case.name, work.text);
            }
        }
    }
}

/// Golden texts: name, WGSL.
fn kept() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/translate");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "wgsl"));
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap().replace("\r\n", "\n"))
    };
    files.into_iter().map(read).collect()
}

#[test]
fn texts_are_as_written_down() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/translate");
    let update = std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1");
    let mut changed = Vec::new();
    for (name, wgsl) in kept() {
        let options = with_subgroups(Subgroups::Extension);
        let texts = [("cu", cuda(&name, &wgsl, &options)), ("cl", opencl(&name, &wgsl, &options))];
        for (ending, work) in texts {
            let path = folder.join(format!("{name}.{ending}"));
            if update {
                std::fs::write(path, &work.text).unwrap();
                continue;
            }
            let was = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
            if was != work.text {
                changed.push(format!("{name}.{ending} is now:\n{}", work.text));
            }
        }
    }
    assert!(changed.is_empty(), "{}\nUPDATE_GOLDEN=1 writes them anew", changed.join("\n"));
}

/// Every kernel that ships, and generated ones: name, WGSL.
fn shipped() -> Vec<(String, String)> {
    let assets = variants().into_iter().map(|spec| {
        let wgsl = asset_wgsl(&spec).unwrap();
        (KernelSpec::Asset(spec).to_string(), wgsl)
    });
    let generated = elementwise().into_iter().chain(rows()).map(|expr| {
        let name = format!("{} {:?}", KernelSpec::Fused(expr.clone()), expr.schedule);
        (name, fused_wgsl(&expr).unwrap())
    });
    let packs = ["histogram", "blur", "nbody", "scan"].map(|name| {
        let file = format!("{}/../examples/packs/{name}/{name}.wgsl", env!("CARGO_MANIFEST_DIR"));
        (name.to_string(), std::fs::read_to_string(file).unwrap())
    });
    assets.chain(generated).chain(packs).collect()
}

/// Kernels on cooperative matrices, which only CUDA gets.
fn cooperative() -> Vec<(String, String)> {
    let named = |spec: AssetSpec| {
        let wgsl = asset_wgsl(&spec).unwrap();
        (KernelSpec::Asset(spec).to_string(), wgsl)
    };
    // A warp is a subgroup.
    let of_warps = |spec: &AssetSpec| spec.get_u32("SUB").is_none_or(|threads| threads == 32);
    cooperative_variants().into_iter().filter(of_warps).map(named).collect()
}

#[test]
fn cooperative_matrices_are_translated_for_cuda_and_refused_for_opencl_by_name() {
    let all = cooperative();
    assert!(all.len() > 20, "only {}", all.len());
    for (name, wgsl) in &all {
        let trusted = Options { bounds: Bounds::Unchecked, ..Options::default() };
        let text = cuda(name, wgsl, &trusted).text;
        if name.starts_with("quantize_to_f16") {
            continue;
        }
        let (multiply, types) = match name.contains("f16_accumulate") {
            true => ("wl_coop_multiply_h(", ".f16.f16.f16.f16 "),
            false => ("wl_coop_multiply(", ".f32.f16.f16.f32 "),
        };
        assert!(text.contains(multiply) && text.contains("mma.sync"), "{name}");
        assert!(text.contains(types), "{name}");
        let (module, info) = translate::parse(wgsl).unwrap();
        let checked = translate::cuda(&module, &info, &Options::default()).unwrap_err();
        assert!(checked.is_unsupported() && checked.to_string().contains("indices are checked"));
        let refused = translate::opencl(&module, &info, &trusted);
        let error = refused.unwrap_err();
        assert!(
            error.is_unsupported() && error.to_string().contains("cooperative matrix"),
            "{error}"
        );
    }
}

#[test]
fn every_kernel_that_ships_is_translated() {
    let all = shipped();
    assert!(all.len() > 500, "only {}", all.len());
    for (name, wgsl) in &all {
        for bounds in [Bounds::Restrict, Bounds::Unchecked] {
            let options = Options { bounds, ..with_subgroups(Subgroups::Extension) };
            for work in [cuda(name, wgsl, &options), opencl(name, wgsl, &options)] {
                assert!(work.text.contains(&format!(" {}(", work.entry)), "{name}");
                assert!(work.bindings.is_sorted_by_key(|b| (b.group, b.binding)), "{name}");
            }
        }
    }
}

/// Checks texts on all threads of the machine: index, name, text.
fn on_all_threads(texts: &[(String, Translated)], check: impl Fn(usize, &str, &Translated) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let check = &check;
    std::thread::scope(|scope| {
        for first in 0..threads {
            let part = texts.iter().enumerate().skip(first).step_by(threads);
            scope.spawn(move || part.for_each(|(at, (name, work))| check(at, name, work)));
        }
    });
}

#[test]
fn nvrtc_takes_every_kernel_that_ships() {
    let Some(nvrtc) = compiler() else { return };
    // As a provider runs them: what ships stays inside of its buffers.
    let options = Options {
        bounds: Bounds::Unchecked,
        zero_workgroup_memory: false,
        returns_together: true,
        ..Options::default()
    };
    let texts: Vec<(String, Translated)> = shipped()
        .into_iter()
        .chain(cooperative())
        .map(|(n, w)| {
            let asset = AssetSpec::new(n.split(['+', '(']).next().unwrap_or_default());
            let tiles = asset.name.starts_with("matvec_mma_");
            let options = Options {
                reads_ahead: reads_ahead(&asset),
                multiplies_codes: true,
                ..options.clone()
            };
            let translated = cuda(&n, &w, &options);
            assert_eq!(translated.text.contains(".s32.s8.s8.s32"), tiles, "{n}");
            (n.clone(), translated)
        })
        .collect();
    let plain: Vec<bool> = variants().iter().map(|spec| spec.constants.is_empty()).collect();
    let (checked, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    on_all_threads(&texts, |at, name, work| {
        // Syntax and types of the catalogue with its defaults and of half of the others, for
        // alternating architectures. To machine code, where `asm` is checked, a sixth of the
        // catalogue with its defaults, and some of the others. WARPLOOM_TEST_ALL=1: all, and to
        // machine code for every architecture.
        let holds = |done: warploom::Result<()>, architecture: &str| {
            done.unwrap_or_else(|log| panic!("{name} for {architecture}: {log}\n{}", work.text));
        };
        let turn = ARCHITECTURES[at % ARCHITECTURES.len()];
        let (of_catalogue, whole) = (plain.get(at).copied(), devices::whole());
        if whole || of_catalogue == Some(true) || at % 2 == 0 {
            holds(nvrtc.check(&work.text, turn), turn);
            checked.fetch_add(1, Relaxed);
        }
        let one_of = if of_catalogue == Some(false) { 24 } else { 6 };
        let due = |i: usize| whole || at % one_of == 0 && at / one_of % ARCHITECTURES.len() == i;
        for (_, architecture) in ARCHITECTURES.iter().enumerate().filter(|(i, _)| due(*i)) {
            holds(nvrtc.compile(&work.text, architecture).map(drop), architecture);
            made.fetch_add(1, Relaxed);
        }
    });
    let (made, plain) = (made.into_inner(), plain.iter().filter(|plain| **plain).count());
    let (checked, all) = (checked.into_inner(), texts.len());
    assert!(made > plain / 8, "only {made} of {all} are compiled");
    assert!(checked >= all / 2, "only {checked} of {all} are checked");
    tell(&format!(
        "nvrtc: {checked} of {all} texts are right, {made} compiled for {ARCHITECTURES:?}"
    ));
}

/// Each kind as the first and the second of an overlapping pair.
#[test]
fn nvrtc_compiles_overlapping_kernels() {
    let Some(nvrtc) = compiler() else { return };
    let base = Options { bounds: Bounds::Unchecked, returns_together: true, ..Options::default() };
    let subgroup = |name: &str| AssetSpec::new(name).define("subgroup");
    let names = [
        "matvec_q4_k",
        "matvec_prequant_q6_k",
        "attn_subgroup",
        "attn_decode",
        "quantize_activations",
    ];
    for spec in names.map(subgroup).into_iter().chain([AssetSpec::new("attn_split_kv")]) {
        let wgsl = asset_wgsl(&spec).unwrap();
        let steady = Options { steady: vec![1], ..base.clone() };
        for options in [
            Options { allows_overlap: true, ..steady.clone() },
            Options { overlaps_previous: true, ..steady },
        ] {
            let work = cuda(&spec.name, &wgsl, &options);
            for architecture in ARCHITECTURES {
                let compiled = nvrtc.compile(&work.text, architecture);
                compiled.unwrap_or_else(|log| {
                    panic!("{spec:?} for {architecture}: {log}\n{}", work.text)
                });
            }
        }
    }
}

/// The keys of earlier runs are loaded before the wait for the current run's results, the rest
/// after it.
#[test]
fn attention_asks_for_settled_keys_before_it_waits() {
    let base = Options { bounds: Bounds::Unchecked, returns_together: true, ..Options::default() };
    let spec = AssetSpec::new("attn_split_kv_fused").define("subgroup").define("f16_kv");
    for settled in [true, false] {
        let spec = if settled { spec.clone().define("settled") } else { spec.clone() };
        let steady = if settled { vec![2, 3] } else { Vec::new() };
        let options = Options { steady, ..base.clone() };
        let text = cuda("attn_split_kv_fused", &asset_wgsl(&spec).unwrap(), &options).text;
        let (_, kernel) = text.split_once("kernel_main").unwrap();
        // After returns that wait themselves.
        let (before, after) = kernel.rsplit_once("wl_wait();").unwrap();
        let reads = |text: &str, name: &str| text.matches(&format!("= {name}[")).count();
        assert_eq!(reads(before, "q"), 0, "{text}");
        for name in ["k", "v"] {
            let early = reads(before, name);
            assert_eq!(early > 0, settled, "{name}: {text}");
            // Those of this iteration, and those of later ones.
            let late = if settled { 2 * early } else { 12 };
            assert_eq!(reads(after, name), late, "{name}: {text}");
        }
    }
}

#[test]
fn opencl_takes_a_sample_of_what_ships() {
    let Some(host) = host() else { return };
    let options = with_subgroups(Subgroups::Extension);
    let mut built = 0;
    for (name, wgsl) in shipped().into_iter().step_by(31) {
        let work = opencl(&name, &wgsl, &options);
        if !host.has(&work.extensions) {
            continue;
        }
        host.build(&work).unwrap_or_else(|log| panic!("{name}: {log}\n{}", work.text));
        built += 1;
    }
    tell(&format!("opencl: {built} kernels that ship are built"));
    assert!(built >= 8, "only {built}");
}
