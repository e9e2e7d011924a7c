//! Kernels as CUDA C and OpenCL C: the texts themselves, what is refused, and that compilers take
//! them.
//!
//! `UPDATE_GOLDEN=1` writes the golden texts anew.


use warploom::translate::{self, Bounds, Options, Subgroups, Translated};

use crate::nvrtc::Nvrtc;
use crate::opencl_host::{self, Host};
use crate::semantics::{Case, POISON, cases};
use crate::tell;

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

/// The OpenCL device, if there is one; says so otherwise.
fn host() -> Option<Host> {
    match opencl_host::open() {
        Ok(host) => {
            tell(&format!("opencl: {}", host.name));
            Some(host)
        }
        Err(why) => {
            let required = std::env::var("WARPLOOM_REQUIRE_OPENCL").is_ok_and(|v| v == "1");
            assert!(!required, "WARPLOOM_REQUIRE_OPENCL=1, but {why}");
            tell(&format!("opencl: skipped, {why}"));
            None
        }
    }
}

fn compiler() -> Option<Nvrtc> {
    match Nvrtc::open() {
        Ok(nvrtc) => Some(nvrtc),
        Err(why) => {
            let required = std::env::var("WARPLOOM_REQUIRE_NVRTC").is_ok_and(|v| v == "1");
            assert!(!required, "WARPLOOM_REQUIRE_NVRTC=1, but {why}");
            tell(&format!("nvrtc: skipped, {why}"));
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
        let place = |b: &translate::Binding| b.binding as usize - usize::from(case.params.is_empty());
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
