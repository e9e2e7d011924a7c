//! The table of WGSL semantics on each device, so that all paths agree.

use warploom::kernel::Access;
use warploom::provider::{Args, Device, OpenOptions, ParamBlock, Recording, Resource, Usage, Word};
use warploom_core::base::Dim;
use warploom_core::base::platform::block_on;

use crate::semantics::{Case, Needs, POISON, cases};
use crate::tell;
use crate::webgpu_host::{dispatch, download, on_each, part, source, whole};

/// Known driver errors: part of the device's name or driver, case, reason. A row that passes must
/// be removed.
const FAILURES: [(&str, &str, &str); 0] = [];

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

pub(crate) fn run(device: &dyn Device, case: &Case) -> Result<Vec<u32>, String> {
    let access = [Access::Read, Access::ReadWrite];
    let kernel = source(&case.name, &case.wgsl, &access, case.params.len() as u32);
    block_on(device.compile(&kernel)).map_err(|e| e.to_string())?;
    let mut work = Recording { label: case.name.clone(), ..Default::default() };
    let x = if case.x.is_empty() { &[0][..] } else { &case.x };
    let poison = vec![POISON; case.expected.len()];
    let mut slots = Vec::new();
    for (name, values) in [("x", x), ("y", &poison[..])] {
        let bytes: Vec<u8> = values.iter().flat_map(|word| word.to_le_bytes()).collect();
        work.slot(name, bytes.len() as u64);
        let size = bytes.len() as u64;
        let buffer = device.alloc(size, Usage::Working).map_err(|e| e.to_string())?;
        device.write(whole(buffer, size), &bytes).map_err(|e| e.to_string())?;
        slots.push(Some(whole(buffer, size)));
    }
    let params = ParamBlock(case.params.iter().map(|word| Word::Bits(*word)).collect());
    dispatch(&mut work, kernel, params, &[(0, access[0]), (1, access[1])], Dim::new(1));
    if let Some(warploom::provider::Command::Dispatch(dispatch)) = work.commands.last_mut() {
        dispatch.grid = case.groups.map(|n| Dim::new(i64::from(n)));
    }
    download(&mut work, part(1, 0, 4 * case.expected.len() as i64));
    let prepared = device.prepare(&work, &slots).map_err(|e| e.to_string())?;
    let ticket = device.submit(&[(prepared, Args::default())]).map_err(|e| e.to_string())?;
    let done = block_on(device.wait(ticket)).map_err(|e| e.to_string())?;
    device.free(Resource::Prepared(prepared));
    slots.iter().flatten().for_each(|range| device.free(Resource::Buffer(range.buffer)));
    Ok(words(&done.downloads[0]))
}

#[test]
fn devices_mean_what_wgsl_means() {
    on_each(OpenOptions::default(), |device| means_what_wgsl_means(&*device));
}

fn means_what_wgsl_means(device: &dyn Device) {
    let profile = device.profile();
    let label = format!("{} {}", profile.name, profile.driver);
    let (mut wrong, mut skipped) = (Vec::new(), 0);
    for case in cases() {
        let has = match case.needs {
            Needs::Nothing => true,
            Needs::Halves => profile.has_f16,
            Needs::Subgroups => profile.has_subgroups,
        };
        if !has {
            skipped += 1;
            continue;
        }
        let is = run(device, &case).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let known = FAILURES.iter().find(|(name, c, _)| label.contains(name) && *c == case.name);
        match (case.difference(&is), known) {
            (Some(difference), None) => wrong.push(difference),
            (None, Some((_, _, reason))) => wrong.push(format!("{} passes: {reason}", case.name)),
            _ => {}
        }
    }
    let (id, all) = (profile.id(), cases().len());
    tell(&format!(
        "semantics: {id} {label}: {} of {all} kernels, {skipped} need what it has not",
        all - skipped
    ));
    assert!(wrong.is_empty(), "{label}:\n{}", wrong.join("\n"));
}
