//! Runs `warploom devices`: lists the devices and the selected one.

use crate::Exit;
use crate::args::DevicesArgs;
use crate::engine::{self, Found, FoundDevice};
use crate::explain::write_file;
use crate::progress::tell;
use crate::{output, units};
use serde_json::{Value, json};
use std::io::Write;
use warploom::provider::{DeviceKind, DeviceProfile};

pub(crate) fn run(args: &DevicesArgs) -> anyhow::Result<Exit> {
    if let Some(path) = &args.save_profile {
        let profile = engine::measured_profile(args.device.as_deref())?;
        write_file(path, profile.to_json().as_bytes())?;
        tell(&format!("profile of {} written to {}", profile.id(), path.display()));
    }
    let found = engine::detect(args.device.as_deref())?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{:#}", report(&found)?)?;
    } else {
        write!(out, "{}", table(&found))?;
    }
    Ok(Exit::Done)
}

/// Returns the report as one JSON object.
fn report(found: &Found) -> anyhow::Result<Value> {
    let mut devices = Vec::new();
    for device in &found.devices {
        let mut row = serde_json::to_value(&device.profile)?;
        row["id"] = device.profile.id().into();
        row["selected"] = device.selected.into();
        row["reason"] = device.reason.clone().into();
        row["tuned"] = device.tuned.into();
        devices.push(row);
    }
    let failures: Vec<Value> =
        found.failures.iter().map(|(p, e)| json!({ "provider": p, "error": e })).collect();
    let absent: Vec<Value> =
        found.absent.iter().map(|(p, why)| json!({ "provider": p, "why": why })).collect();
    let selected = found.devices.iter().find(|d| d.selected).map(|d| d.profile.id());
    Ok(json!({
        "startup_line": found.startup_line,
        "selected": selected,
        "devices": devices,
        "failures": failures,
        "absent": absent,
    }))
}

/// Returns a table with a row for each device and a mark at the selected one, then notes and the
/// startup line.
fn table(found: &Found) -> String {
    let head = ["", "id", "name", "kind", "driver", "memory", "bandwidth", "features"];
    let mut rows = vec![head.map(String::from)];
    // The null device executes nothing, so it is shown only if selected.
    let shown = |d: &&FoundDevice| d.selected || d.profile.kind != DeviceKind::Null;
    rows.extend(found.devices.iter().filter(shown).map(row));
    let widths: Vec<usize> = (0..head.len())
        .map(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text.push('\n');
    for device in found.devices.iter().filter(shown) {
        let tuned = match device.tuned {
            0 => String::new(),
            count => format!("; {count} tasks tuned"),
        };
        text.push_str(&format!("{}: {}{tuned}\n", device.profile.id(), device.reason));
    }
    for (provider, why) in &found.absent {
        text.push_str(&format!("{provider}: not here: {why}\n"));
    }
    text.push_str(&found.startup_line);
    text.push('\n');
    text
}

fn row(device: &FoundDevice) -> [String; 8] {
    let profile = &device.profile;
    let or_unknown = |n: u64, unit: &str| match n {
        0 => "-".to_owned(),
        n => format!("{}{unit}", units::bytes(n)),
    };
    [
        if device.selected { "*" } else { "" }.into(),
        profile.id(),
        profile.name.clone(),
        profile.kind.title().into(),
        profile.driver.clone(),
        or_unknown(profile.memory_bytes, ""),
        or_unknown(profile.local_bandwidth, "/s"),
        features(profile),
    ]
}

fn features(profile: &DeviceProfile) -> String {
    let mut all = profile.features();
    if profile.compute_units > 0 {
        all.push(format!("{} units", profile.compute_units));
    }
    if all.is_empty() { "-".into() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let gpu = DeviceProfile::webgpu_floor("").with(|p| {
            p.name = "Test GPU".into();
            p.driver = "1.2".into();
            p.memory_bytes = 8_000_000_000;
            p.local_bandwidth = 448_000_000_000;
            p.has_subgroups = true;
            p.subgroup_min = 32;
            p.subgroup_max = 32;
            p.has_f16 = true;
        });
        let cpu = DeviceProfile::webgpu_floor("").with(|p| {
            p.provider = "cpu".into();
            p.name = "Test CPU".into();
            p.driver = "avx2".into();
            p.kind = DeviceKind::Cpu;
            p.compute_units = 2;
        });
        let null = cpu.clone().with(|p| {
            p.provider = "null".into();
            p.kind = DeviceKind::Null;
        });
        let device = |profile, reason: &str, selected| FoundDevice {
            profile,
            reason: reason.into(),
            selected,
            tuned: if selected { 7 } else { 0 },
        };
        Found {
            startup_line: "requested=auto detected=[..] selected=webgpu:0".into(),
            devices: vec![
                device(gpu, "best", true),
                device(cpu, "second", false),
                device(null, "nothing", false),
            ],
            failures: vec![("opencl".into(), "no driver".into())],
            absent: vec![("cuda".into(), "no libcuda".into())],
        }
    }

    #[test]
    fn the_table_aligns_and_ends_in_the_startup_line() {
        let want = [
            "   id        name      kind          driver  memory  bandwidth   features",
            "*  webgpu:0  Test GPU  discrete GPU  1.2     8.0 GB  448.0 GB/s  subgroups 32, f16",
            "   cpu:0     Test CPU  CPU           avx2    -       -           2 units",
            "",
            "webgpu:0: best; 7 tasks tuned",
            "cpu:0: second",
            "cuda: not here: no libcuda",
            "requested=auto detected=[..] selected=webgpu:0",
        ];
        assert_eq!(table(&found()).lines().collect::<Vec<_>>(), want);
    }

    #[test]
    fn json_holds_every_device_and_field() {
        let got = report(&found()).unwrap();
        assert_eq!(got["selected"], "webgpu:0");
        assert_eq!(got["startup_line"], "requested=auto detected=[..] selected=webgpu:0");
        assert_eq!(got["devices"].as_array().unwrap().len(), 3);
        let gpu = &got["devices"][0];
        assert_eq!((&gpu["id"], &gpu["selected"]), (&json!("webgpu:0"), &json!(true)));
        assert_eq!(gpu["local_bandwidth"], 448_000_000_000u64);
        assert_eq!((&gpu["kind"], &gpu["reason"]), (&json!("discrete"), &json!("best")));
        assert_eq!(got["failures"][0], json!({"provider": "opencl", "error": "no driver"}));
        assert_eq!(got["absent"][0], json!({"provider": "cuda", "why": "no libcuda"}));
    }
}
