//! Runs `warploom explain`: prints plans and graphs.

use crate::Exit;
use crate::analyze;
use crate::engine;
use crate::explain_args::{ExplainArgs, Form, Phase};
use crate::output;
use crate::progress::tell;
use anyhow::{Context, bail};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use warploom::engine::{Block, EngineId, Registry, TunedChoices};
use warploom::graph::{self, Graph, NodeId};
use warploom::plan::{Options, PASSES, PartitionedPlan, Plan, Selector, TextOptions};
use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::runtime::{self, known_wrong_on, tuned_on};
use warploom_core::base::{ShapeClass, Symbol};
use warploom_llm::{CacheShape, DecoderInput, DecoderOutput, Session, class_of, class_of_batch};

/// Default number of positions of the KV cache, as in a session.
const CONTEXT: usize = 4096;
/// Number of sequences of [`Phase::Batch`].
const SEQUENCES: usize = 8;

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    check_passes(args)?;
    if args.plan.is_some() && args.place.model.is_some() && !args.analyze {
        bail!("--plan contains the graph; --model adds weights and needs --analyze");
    }
    let registry = runtime::registry()?;
    let mut options = Options::new(&registry);
    options.without.clone_from(&args.without);
    options.deterministic = args.place.deterministic || runtime::deterministic_by_env()?;
    // Command-line engines precede those of the environment, as in a runtime for such plans.
    let (preferred, blocked) = runtime::engines_by_env()?;
    let ids = |names: &[String]| -> Vec<EngineId> {
        names.iter().map(|name| EngineId::new(name.clone())).collect()
    };
    options.preferred = [ids(&args.engine), preferred].concat();
    options.block = [ids(&args.block), blocked].concat();
    options.force.clone_from(&args.force);
    for (id, name, value) in &args.knob {
        options.knobs = options.knobs.set(id.clone(), name, *value);
    }
    let mut out = output::stdout();

    if let Some(form) = args.graph {
        let profile = profile(args)?;
        let (graph, class) = subject(args, &profile, profile.kind)?;
        let pass = args.after.as_deref().unwrap_or("infer");
        let graph = Plan::graph_after(&graph, &class, &profile, &options, pass)?;
        let text = match form {
            Form::Text => graph.to_string(),
            Form::Dot => graph::dot(&graph),
        };
        write!(out, "{text}")?;
        return Ok(Exit::Done);
    }
    if !args.with_device.is_empty() {
        return over_devices(args, options, &mut out);
    }
    let plan = match &args.plan {
        Some(path) => Plan::load(&read(path)?).with_context(|| path.display().to_string())?,
        None => {
            let profile = profile(args)?;
            let (graph, class) = subject(args, &profile, profile.kind)?;
            options.known_wrong = known_wrong(&profile, &registry)?;
            options.tuned = vec![tuned(&profile)?];
            Plan::new(&graph, &class, &profile, &options)?
        }
    };
    if let Some(path) = &args.save_plan {
        write_file(path, &plan.save()?)?;
        tell(&format!("plan written to {}", path.display()));
    }
    let mut report = plan.report();
    if args.analyze {
        let analysis = analyze::analyze(args, &plan)?;
        if let Some(path) = &args.trace {
            let trace = plan.trace(&analysis);
            write_file(path, serde_json::to_string(&trace)?.as_bytes())?;
            tell(&format!("trace written to {}; open it in Perfetto", path.display()));
        }
        report = report.measured(analysis);
    }
    if args.json {
        writeln!(out, "{:#}", report.json())?;
    } else {
        let text = TextOptions { all: args.all, arena: args.arena, why: !args.no_why };
        write!(out, "{}", report.text(&text))?;
    }
    Ok(Exit::Done)
}

/// Returns the engines that a runtime on the device would exclude: errata and findings of `doctor`.
/// An unreadable file is reported on standard error.
fn known_wrong(profile: &DeviceProfile, registry: &Registry) -> anyhow::Result<Vec<Block>> {
    let (blocks, ignored) = known_wrong_on(profile, registry)?;
    if let Some(ignored) = ignored {
        tell(&ignored);
    }
    Ok(blocks)
}

/// Returns the tuner's choices that a runtime on the device would use. Unreadable files are
/// reported on standard error.
fn tuned(profile: &DeviceProfile) -> anyhow::Result<Arc<TunedChoices>> {
    let (choices, ignored) = tuned_on(profile)?;
    ignored.iter().for_each(|ignored| tell(ignored));
    Ok(choices)
}

/// Makes, saves and prints a plan over several devices.
fn over_devices(
    args: &ExplainArgs,
    mut options: Options,
    out: &mut impl Write,
) -> anyhow::Result<Exit> {
    let mut devices = vec![profile(args)?];
    for name in &args.with_device {
        devices.push(named_profile(name)?);
    }
    // A CPU among the devices cannot read the weight layouts that only GPUs use.
    let kinds = || devices.iter().map(|device| device.kind);
    let kept = kinds().find(|kind| *kind == DeviceKind::Cpu).unwrap_or(devices[0].kind);
    let (graph, class) = subject(args, &devices[0], kept)?;
    for device in &devices {
        options.known_wrong.extend(known_wrong(device, options.registry)?);
        options.tuned.push(tuned(device)?);
    }
    let plan = PartitionedPlan::new(&graph, &class, &devices, &args.place_nodes, &options)?;
    if let Some(path) = &args.save_plan {
        write_file(path, &plan.save()?)?;
        tell(&format!("plan written to {}", path.display()));
    }
    write!(out, "{}", plan.explain())?;
    Ok(Exit::Done)
}

/// Returns the graph to plan, with weights in the layouts of device kind `kept`, and the shape
/// class to plan it for.
fn subject(
    args: &ExplainArgs,
    device: &DeviceProfile,
    kept: DeviceKind,
) -> anyhow::Result<(Graph, ShapeClass)> {
    if let Some(path) = &args.graph_file {
        let graph = graph::load(&read(path)?).with_context(|| path.display().to_string())?;
        let class = args
            .symbols
            .iter()
            .fold(ShapeClass::new(), |class, (symbol, low, high)| class.with(*symbol, *low, *high));
        return Ok((graph, class));
    }
    let model = engine::open_model(&args.place)?;
    let context = context(args, model.config().context);
    let tokens = tokens(args.phase).min(context);
    let mode = args.place.compute.unwrap_or_else(|| Session::default_mode(device));
    let dtype = args.place.cache.unwrap_or(Session::default_cache(mode));
    let (input, sequences) = sequences(args.phase);
    let cache = CacheShape::new(sequences, context, dtype);
    let graph = model.graph_on(kept, cache, input, DecoderOutput::Greedy)?;
    let graph = graph::computing_in(&graph, mode)?;
    let class = match input.is_batch() {
        true => class_of_batch(sequences)?,
        false => class_of(tokens, context)?,
    };
    Ok((graph, class))
}

/// Returns the number of positions of the KV cache, for a model with a context of `trained`.
pub(crate) fn context(args: &ExplainArgs, trained: usize) -> usize {
    args.place.context.unwrap_or(trained.min(CONTEXT))
}

/// Returns the number of tokens of a run: the upper end of the phase's shape class.
pub(crate) fn tokens(phase: Phase) -> usize {
    match phase {
        Phase::Decode => 1,
        Phase::Prefill => 512,
        Phase::Batch => SEQUENCES,
    }
}

/// Returns the kind of input of a phase, and its number of sequences.
pub(crate) fn sequences(phase: Phase) -> (DecoderInput, usize) {
    match phase {
        Phase::Decode | Phase::Prefill => (DecoderInput::Tokens, 1),
        Phase::Batch => (DecoderInput::Batch, SEQUENCES),
    }
}

/// Returns the profile to plan for: a saved or built-in one, or that of a device of this machine.
fn profile(args: &ExplainArgs) -> anyhow::Result<DeviceProfile> {
    let Some(name) = &args.profile else {
        let found = engine::detect(args.place.device.as_deref())?;
        let selected = found.devices.into_iter().find(|device| device.selected);
        return selected.map(|device| device.profile).context("no device is selected");
    };
    named_profile(name)
}

/// Returns a built-in profile by name, or a saved one by path.
fn named_profile(name: &str) -> anyhow::Result<DeviceProfile> {
    if DeviceProfile::known_names().any(|known| known == name) {
        return Ok(DeviceProfile::known(name)?);
    }
    let path = Path::new(name);
    if !path.exists() {
        let names: Vec<&str> = DeviceProfile::known_names().collect();
        bail!("no profile {name:?}: neither a file nor one of {}", names.join(", "));
    }
    DeviceProfile::from_json(&read(path)?).with_context(|| path.display().to_string())
}

fn check_passes(args: &ExplainArgs) -> anyhow::Result<()> {
    let names = |optional: bool| -> Vec<&str> {
        PASSES.iter().filter(|p| p.optional || !optional).map(|p| p.name).collect()
    };
    for name in &args.without {
        if !names(true).contains(&name.as_str()) {
            let (wrong, all) = (names(false).contains(&name.as_str()), names(true).join(", "));
            let what = if wrong { "cannot be switched off" } else { "does not exist" };
            bail!("pass {name:?} {what}; those that can be are {all}");
        }
    }
    match &args.after {
        Some(name) if !names(false).contains(&name.as_str()) => {
            bail!("pass {name:?} does not exist; there is {}", names(false).join(", "))
        }
        _ => Ok(()),
    }
}

/// Parses nodes and the engine to force for them: `LABEL=ID`, `%NODE=ID` or `op:NAME=ID`.
pub(crate) fn forced(text: &str) -> Result<(Selector, EngineId), String> {
    let (nodes, id) = text.rsplit_once('=').ok_or("must be NODES=ID")?;
    Ok((selector(nodes)?, EngineId::new(id.to_string())))
}

/// Same as [`forced`], with the slot of a device instead of an engine.
pub(crate) fn placed(text: &str) -> Result<(Selector, usize), String> {
    let (nodes, slot) = text.rsplit_once('=').ok_or("must be NODES=SLOT")?;
    let slot = slot.parse().map_err(|_| format!("{slot:?} is not a slot: 0, 1 ..."))?;
    Ok((selector(nodes)?, slot))
}

fn selector(nodes: &str) -> Result<Selector, String> {
    Ok(match (nodes.strip_prefix('%'), nodes.strip_prefix("op:")) {
        (Some(node), _) => {
            let node = node.parse().map_err(|_| format!("{nodes:?} is not a node, such as %12"))?;
            Selector::Node(NodeId(node))
        }
        (_, Some(name)) => Selector::Operation(name.into()),
        _ => Selector::Label(nodes.into()),
    })
}

/// Parses the value of an engine's knob: `ID:NAME=N`.
pub(crate) fn knob(text: &str) -> Result<(EngineId, String, u32), String> {
    let wrong = || "must be ID:NAME=N".to_string();
    let (id, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (name, value) = rest.split_once('=').ok_or_else(wrong)?;
    let value = value.parse().map_err(|_| wrong())?;
    Ok((EngineId::new(id.to_string()), name.into(), value))
}

/// Parses the range of a symbol, such as `seq=1..8` or `past=512`.
pub(crate) fn symbol(text: &str) -> Result<(Symbol, u64, u64), String> {
    let wrong = || "must be NAME=N or NAME=LOW..HIGH".to_string();
    let (name, range) = text.split_once('=').ok_or_else(wrong)?;
    let symbol = Symbol::parse(name).map_err(|e| e.to_string())?;
    let (low, high) = range.split_once("..").unwrap_or((range, range));
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    match (number(low)?, number(high)?) {
        (low, high) if low <= high => Ok((symbol, low, high)),
        (low, high) => Err(format!("{low} is above {high}")),
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
