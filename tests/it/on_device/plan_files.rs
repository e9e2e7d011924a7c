//! Plan files: a saved plan loads, a damaged or hostile one is refused with a reason, and a plan
//! made for a saved profile runs on such a device.

use std::collections::BTreeMap;

use warploom::Error;
use warploom::engine::Registry;
use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
use warploom::plan::{Options, Plan};
use warploom::provider::DeviceProfile;
use warploom::runtime::{DeviceTensors, Instance, Runtime, WeightSource};
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, Symbol, SymbolValues};
use warploom_core::reference::{self, Tensor};

use crate::plans;
use crate::tell;

const SEQ: Symbol = Symbol::new("seq");

/// `softmax(silu(x w^T) * y)` with varying rows, and a state that is read and written.
fn graph() -> Graph {
    let seq = Dim::symbol(SEQ);
    let mut g = Graph::new("small");
    let x = g.input("x", Shape::new([seq.clone(), Dim::new(64)]), DType::F32);
    let y = g.input("y", Shape::new([32]), DType::F32);
    let w = g.weight("w", Shape::new([32, 64]), Format::Q8_0);
    let h = g.add(Op::linear(), &[x, w]).unwrap();
    let h = g.add(Op::Unary(UnaryOp::Silu), &[h]).unwrap();
    let h = g.add(Op::Binary(BinaryOp::Mul), &[h, y]).unwrap();
    let s = g.state("s", Shape::new([16, 32]), DType::F32);
    let s = g.add(Op::Update { at: Dim::new(2) }, &[s, h]).unwrap();
    let part = Op::Slice { axis: 0, start: Dim::new(0), len: seq + Dim::new(2), step: 1 };
    let s = g.add(part, &[s]).unwrap();
    let s = g.add(Op::Softmax, &[s]).unwrap();
    g.output("s", s).unwrap();
    g
}

fn small(profile: &DeviceProfile) -> Plan {
    let registry = Registry::builtin();
    let class = ShapeClass::new().with(SEQ, 1, 8);
    Plan::new(&graph(), &class, profile, &Options::new(&registry)).unwrap()
}

fn refused(bytes: &[u8]) -> String {
    let error: Error = Plan::load(bytes).unwrap_err();
    assert!(error.is_bad_file(), "{error}");
    error.to_string()
}

/// A file with another body and a valid first line.
fn signed(body: &[u8]) -> Vec<u8> {
    let mut file =
        format!("warploom-plan 12 {} {}\n", blake3::hash(body).to_hex(), body.len()).into_bytes();
    file.extend(body);
    file
}

fn body(file: &[u8]) -> &[u8] {
    let end = file.iter().position(|byte| *byte == b'\n').unwrap();
    &file[end + 1..]
}

#[test]
fn what_is_saved_is_loaded_and_gives_the_same_bytes() {
    for name in DeviceProfile::known_names() {
        let profile = DeviceProfile::known(name).unwrap();
        let mut all = vec![small(&profile)];
        all.push(plans::plan(&plans::embedded(), 512, 1, &profile));
        all.push(plans::plan(&plans::embedded(), 512, 512, &profile));
        for plan in all {
            let bytes = plan.save().unwrap();
            let loaded = Plan::load(&bytes).unwrap();
            assert!(loaded == plan, "{name}");
            assert_eq!(loaded.save().unwrap(), bytes, "{name}");
            assert_eq!(loaded.explain(), plan.explain());
        }
    }
}

#[test]
fn a_plan_made_twice_gives_one_file() {
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let make = || plans::plan(&plans::embedded(), 512, 1, &profile).save().unwrap();
    assert!(make() == make());
}

#[test]
fn bad_files_say_what_is_wrong() {
    let file = small(&DeviceProfile::known("lavapipe").unwrap()).save().unwrap();
    let text = String::from_utf8(file.clone()).unwrap();
    assert!(refused(b"").contains("offset 0"));
    assert!(refused(b"{}\n").contains("offset 0"));
    assert!(refused(b"\xff\xfe\n").contains("offset 0: the first line is not text"));
    assert!(refused(text.replacen("warploom-plan", "plan", 1).as_bytes()).contains("\"plan\""));
    let newer = text.replacen("plan 12 ", "plan 13 ", 1);
    assert!(refused(newer.as_bytes()).contains("version 13, this build reads 12"));
    assert!(refused(&[&file[..], b" "].concat()).contains("bytes from offset"));
    let flipped = text.replacen("softmax", "softmin", 1);
    assert_ne!(flipped, text);
    assert!(refused(flipped.as_bytes()).contains("checksum"));
    assert!(refused(&signed(b"{\"name\":3}")).contains("line 2, column 9"));

    let body = std::str::from_utf8(body(&file)).unwrap();
    let rows = [
        ("\"seq\",1,8", "\"seq\",9,8", "class"),
        ("\"binding_alignment\":64", "\"binding_alignment\":0", "binding_alignment"),
        ("\"max_storage_buffers\":32", "\"max_storage_buffers\":1", "storage buffers"),
        ("\"tensor\":0", "\"tensor\":99", "tensor 99 does not exist"),
        ("\"kernel\":0", "\"kernel\":77", "kernel 77 is not the step's"),
        ("\"params\":0", "\"params\":77", "parameters 77 are not the step's"),
        ("{\"Input\":0}", "{\"Input\":9}", "input 9"),
        ("\"slot\":0", "\"slot\":50", "slot 50 does not exist"),
        ("\"Symbol\\\":\\\"seq\\\"", "\"Symbol\\\":\\\"sew\\\"", "sew"),
        ("{\"Arg\":0}", "{\"Arg\":4}", "upload 4, not 0"),
    ];
    for (from, to, words) in rows {
        assert!(body.contains(from), "{from} is not in {body}");
        let error = refused(&signed(body.replace(from, to).as_bytes()));
        assert!(error.contains(words), "{from} -> {to}: {error}");
    }
}

#[test]
fn truncated_files_are_errors() {
    let file = small(&DeviceProfile::known("cpu-avx512").unwrap()).save().unwrap();
    let whole = body(&file);
    for len in 0..file.len() {
        refused(&file[..len]);
    }
    for len in 0..whole.len() {
        refused(&signed(&whole[..len]));
    }
}

/// A reproducible random number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// One mutation of the text: a byte, a number, a number everywhere, or a copied part.
fn mutated(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    let at = random.below(text.len());
    match random.below(5) {
        0 => text[at] = random.below(256) as u8,
        kind @ 1..=3 => {
            let digits: Vec<usize> =
                (0..text.len()).filter(|i| text[*i].is_ascii_digit()).collect();
            let at = digits[random.below(digits.len())];
            let end = at + text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let numbers = ["0", "1", "3", "7", "4294967295", "18446744073709551615", "-1", "1e300"];
            let number = numbers[random.below(numbers.len())];
            if kind == 3 {
                // Wherever the field has this value: a step and its dispatch contain the same one.
                let from = at.saturating_sub(9);
                let old = String::from_utf8_lossy(&text[from..end]).into_owned();
                let new = old.replace(&old[old.len() - (end - at)..], number);
                return String::from_utf8_lossy(&text).replace(&old, &new).into_bytes();
            }
            text.splice(at..end, number.bytes());
        }
        _ => {
            let len = random.below(40.min(text.len() - at) + 1);
            let piece = text[at..at + len].to_vec();
            let to = random.below(text.len());
            text.splice(to..(to + random.below(40)).min(text.len()), piece);
        }
    }
    text
}

/// A mutant is refused, or it is a valid plan: then it can be read, saved, and run on the CPU,
/// which checks memory accesses. Nothing panics or reads out of bounds.
#[test]
fn twenty_thousand_mutants_are_refused_or_run() {
    let runtime = Runtime::builder().device("cpu").threads(Some(1)).memory_budget(Some(64 << 20));
    let runtime = runtime.build().unwrap();
    let file = small(runtime.device().profile()).save().unwrap();
    let mut random = Random(0x5EED);
    let (mut loaded, mut ran) = (0, 0);
    for turn in 0..20_000 {
        let mutant = match turn % 8 {
            // The first line and the checksum are checked too.
            0 => mutated(&file, &mut random),
            _ => signed(&mutated(body(&file), &mut random)),
        };
        let plan = match Plan::load(&mutant) {
            Err(error) => {
                assert!(error.is_bad_file() && error.to_string().len() > 12, "{error}");
                continue;
            }
            Ok(plan) => plan,
        };
        loaded += 1;
        assert!(plan.explain().contains("why:") && !plan.outline().is_empty());
        let again = Plan::load(&plan.save().unwrap()).unwrap();
        assert!(again == plan);
        ran += usize::from(runs(&runtime, plan).is_ok());
    }
    tell(&format!("plan files: of 20000 mutants {loaded} loaded and {ran} ran"));
    // Labels, estimates and other texts may be anything, so some mutants are valid plans.
    assert!(loaded > 100 && ran > 100);
}

fn runs(runtime: &Runtime, plan: Plan) -> Result<(), Error> {
    let mut symbols = SymbolValues::new();
    plan.class.ranges().iter().for_each(|(symbol, low, _)| symbols.set(*symbol, *low));
    let mut inputs = Vec::new();
    for input in &plan.inputs {
        let bytes = input.shape.elements().eval_size(&symbols)?.saturating_mul(input.dtype.bytes());
        if bytes > 1 << 20 {
            return Err(Error::invalid("an input too large for this test"));
        }
        inputs.push(vec![0; bytes as usize]);
    }
    let mut resident = DeviceTensors::zeros(runtime.pool(), &**runtime.device(), &plan)?;
    let instance = Instance::new(runtime, plan, &mut resident)?;
    instance.read(symbols, inputs).map(|_| ())
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect()
}

/// Built ahead of time for a profile, without the device, then run on a device of that kind.
#[test]
fn a_plan_built_ahead_runs_on_such_a_device() {
    let weight = warploom_core::quant::encode(Format::Q8_0, &ramp(32 * 64)).unwrap();
    let rows = 5;
    let (x, y) = (bytes(&ramp(rows * 64)), bytes(&ramp(32)));
    let symbols = SymbolValues::new().with(SEQ, rows as u64);
    let mut decoded = vec![0.0; 32 * 64];
    warploom_core::quant::decode(Format::Q8_0, &weight, &mut decoded).unwrap();
    let tensor = |shape: &[u64], bytes: &[u8]| {
        Tensor::from_bytes(shape.to_vec(), DType::F32, bytes).unwrap()
    };
    let tensors: BTreeMap<String, Tensor> = [
        ("x".to_string(), tensor(&[rows as u64, 64], &x)),
        ("y".to_string(), tensor(&[32], &y)),
        ("w".to_string(), tensor(&[32, 64], &bytes(&decoded))),
    ]
    .into();
    let graph = graph();
    let values = reference::eval(&graph, &symbols, &tensors).unwrap();
    let expected = values.value(graph.outputs()[0].1).to_bytes();
    for (label, runtime) in crate::devices::every(true) {
        let profile = runtime.device().profile();
        let name = match profile.provider.as_str() {
            "cpu" => "cpu-avx512",
            _ if label.ends_with("floor") || !profile.has_subgroups => "browser-floor",
            _ => "lavapipe",
        };
        let ahead = small(&DeviceProfile::known(name).unwrap());
        let plan = Plan::load(&ahead.save().unwrap()).unwrap();
        let (pool, device) = (runtime.pool(), &**runtime.device());
        let mut resident = DeviceTensors::new();
        let source = WeightSource { name: "w", bytes: &weight };
        resident.upload(pool, device, &[source], &mut |_| {}).unwrap();
        resident.state(pool, device, "s", 16 * 32 * 4).unwrap();
        let instance = Instance::new(&runtime, plan, &mut resident).unwrap();
        let inputs = vec![x.clone(), y.clone()];
        let got = instance.read(symbols.clone(), inputs).unwrap().remove(0);
        assert_eq!(got.len(), expected.len(), "{label}");
        for (got, want) in got.chunks_exact(4).zip(expected.chunks_exact(4)) {
            let [got, want] = [got, want].map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            assert!((got - want).abs() <= 1e-5, "{label}: {got} is not {want}");
        }
    }
}

#[test]
fn a_device_that_lacks_what_a_plan_needs_is_named_with_its_limits() {
    let h200 = DeviceProfile::known("nvidia-h200").unwrap();
    let floor = DeviceProfile::known("browser-floor").unwrap();
    let plan = plans::plan(&plans::embedded(), 512, 1, &h200);
    let error = plan.fits(&floor).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    for words in ["NVIDIA H200", "guaranteed limits", "needs subgroups"] {
        assert!(error.to_string().contains(words), "{words:?} in {error}");
    }
    let narrow = h200.with(|p| {
        p.max_buffer_bytes = 1 << 14;
        p.max_binding_bytes = 1 << 14;
    });
    let error = plan.fits(&narrow).unwrap_err().to_string();
    assert!(error.contains("at most 16384") && error.contains("more"), "{error}");

    // Also an error when it is put on the device.
    let cpu = Runtime::builder().device("cpu").build().unwrap();
    let mut plan = small(&DeviceProfile::known("cpu-avx512").unwrap());
    let spec = warploom::kernel::AssetSpec::new("softmax").define("subgroup");
    plan.recording.kernels.push(warploom::kernel::KernelSpec::Asset(spec));
    let error = Instance::new(&cpu, plan, &mut DeviceTensors::new()).err().unwrap();
    assert!(error.is_unsupported() && error.to_string().contains("does not fit cpu:0"), "{error}");
}
