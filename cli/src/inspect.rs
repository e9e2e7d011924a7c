//! Runs `warploom inspect`: describes a model file, and what running it needs.

use crate::Exit;
use crate::download;
use crate::inspect_args::InspectArgs;
use crate::{output, units};
use anyhow::bail;
use serde_json::{Map, Value as Json, json};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use warploom_llm::chat::Template;
use warploom_llm::config::Pooling;
use warploom_llm::huggingface::Folder;
use warploom_llm::{DEFAULT_CONTEXT, Model};
use warploom_models::gguf::{Access, Gguf, TensorInfo, Value};

/// Elements of a list of the metadata that are printed.
const SHOWN: usize = 6;
/// Characters of a text of the metadata that are printed.
const LONGEST: usize = 100;

/// A file.
enum Inspected {
    /// A model that can be run.
    Runs(Arc<Model>),
    /// Another one, and why it cannot be run.
    Not(Box<Gguf>, String),
}

impl Inspected {
    fn open(path: &Path) -> anyhow::Result<Inspected> {
        let open = || match Folder::is_at(path) {
            true => Folder::open(path)?.gguf(),
            false => Gguf::open(path, Access::Mmap),
        };
        match open().and_then(Model::from_gguf) {
            Ok(model) => Ok(Inspected::Runs(model)),
            Err(error) => match open() {
                Ok(file) => Ok(Inspected::Not(Box::new(file), error.to_string())),
                Err(_) => Err(error.into()),
            },
        }
    }

    fn file(&self) -> &Gguf {
        match self {
            Inspected::Runs(model) => model.file(),
            Inspected::Not(file, _) => file,
        }
    }
}

pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<Exit> {
    let inspected = match &args.model {
        Some(path) => Inspected::open(&download::here(path)?)?,
        None => embedded()?,
    };
    let report = report(&inspected, args);
    let mut out = output::stdout();
    match args.json {
        true => writeln!(out, "{:#}", Json::Object(report))?,
        false => write!(out, "{}", text(&report))?,
    }
    out.flush()?;
    match inspected {
        Inspected::Runs(_) => Ok(Exit::Done),
        Inspected::Not(_, why) => bail!("it cannot be run: {why}"),
    }
}

#[cfg(feature = "embedded-model")]
fn embedded() -> anyhow::Result<Inspected> {
    Ok(Inspected::Runs(Model::embedded()?))
}

#[cfg(not(feature = "embedded-model"))]
fn embedded() -> anyhow::Result<Inspected> {
    bail!("no model is named, and none is embedded in this build")
}

/// Returns the report: names and values in the order of the text.
fn report(inspected: &Inspected, args: &InspectArgs) -> Map<String, Json> {
    let file = inspected.file();
    let mut report = Map::new();
    report.insert("schema".into(), 1.into());
    report.insert("file".into(), file.name().into());
    report.insert("bytes".into(), file.file_bytes().into());
    report.insert("gguf_version".into(), file.version().into());
    for (name, key) in [
        ("name", "general.name"),
        ("architecture", "general.architecture"),
        ("license", "general.license"),
    ] {
        if let Some(Value::String(value)) = file.value(key) {
            report.insert(name.into(), value.into());
        }
    }
    report.insert("runs".into(), matches!(inspected, Inspected::Runs(_)).into());
    if let Inspected::Not(_, why) = inspected {
        report.insert("why_not".into(), why.as_str().into());
    }
    report.insert("parameters".into(), parameters(file, 1, 1).into());
    if let Inspected::Runs(model) = inspected {
        describe(model, args, &mut report);
    }
    report.insert("tensors".into(), formats(file));
    if args.tensors {
        let each = file.tensors().map(|info| {
            json!({
                "name": info.name(),
                "shape": info.shape(),
                "format": format_name(&info),
                "bytes": info.byte_len(),
                "offset": info.file_offset(),
            })
        });
        report.insert("tensor_list".into(), each.collect());
    }
    if args.metadata {
        let each = file.metadata().map(|(key, value)| (key.to_owned(), metadata(file, key, value)));
        report.insert("metadata".into(), Json::Object(each.collect()));
    }
    report
}

/// Adds what a model that can be run is, and what it needs.
fn describe(model: &Model, args: &InspectArgs, report: &mut Map<String, Json>) {
    let config = model.config();
    if let Some(experts) = &config.experts {
        let (count, active) = (experts.count as u64, experts.active as u64);
        report.insert("active_parameters".into(), parameters(model.file(), count, active).into());
        report.insert("experts".into(), count.into());
        report.insert("active_experts".into(), active.into());
    }
    for (name, value) in [
        ("layers", config.layers),
        ("width", config.width),
        ("heads", config.heads),
        ("kv_heads", config.kv_heads),
        ("head_size", config.head_dim),
        ("feed_forward", config.feed_forward),
        ("vocabulary", config.vocabulary),
        ("context", config.context),
    ] {
        report.insert(name.into(), value.into());
    }
    if let Some(window) = config.window {
        report.insert("window".into(), window.size.into());
    }
    let encodes = config.architecture.encodes;
    let used = match (encodes, config.pooling) {
        (true, Pooling::Score) => "scores of pairs of texts",
        (true, _) => "vectors of texts",
        (false, _) => "text",
    };
    report.insert("use".into(), used.into());
    match encodes {
        true => {
            report.insert("pooling".into(), config.pooling.name().into());
        }
        false => {
            report.insert("chat_template".into(), Template::of(model).is_ok().into());
        }
    }
    let weights = model.weight_bytes();
    let mut memory = json!({ "weights": weights });
    if !encodes {
        let context = args.context.unwrap_or(config.context.min(DEFAULT_CONTEXT));
        let cache = model.cache_bytes_per_token(args.cache) * context as u64 + model.state_bytes();
        memory["context"] = context.into();
        memory["cache_type"] = args.cache.to_string().into();
        memory["cache"] = cache.into();
        memory["total"] = (weights + cache).into();
    }
    report.insert("memory".into(), memory);
}

/// Returns the number of parameters, of which a token uses `active` of `count` experts.
fn parameters(file: &Gguf, count: u64, active: u64) -> u64 {
    let used = |info: TensorInfo| match info.name().contains("_exps.") {
        true => info.elements() / count.max(1) * active,
        false => info.elements(),
    };
    file.tensors().filter(|info| info.name() != "rope_freqs.weight").map(used).sum()
}

fn format_name(info: &TensorInfo) -> String {
    match info.type_name() {
        Some(name) => name.to_owned(),
        None => format!("type {}", info.type_number()),
    }
}

/// Returns the number of tensors of each format, and their bytes; those with the most bytes first.
fn formats(file: &Gguf) -> Json {
    let mut all: Vec<(String, u64, u64)> = Vec::new();
    for info in file.tensors() {
        let (name, bytes) = (format_name(&info), info.byte_len().unwrap_or(0));
        match all.iter_mut().find(|(other, ..)| *other == name) {
            Some((_, count, sum)) => (*count, *sum) = (*count + 1, *sum + bytes),
            None => all.push((name, 1, bytes)),
        }
    }
    all.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    let rows = all
        .into_iter()
        .map(|(format, count, bytes)| json!({ "format": format, "count": count, "bytes": bytes }));
    rows.collect()
}

/// Returns a value of the metadata; long texts and lists are shortened.
fn metadata(file: &Gguf, key: &str, value: Value<'_>) -> Json {
    let short = |text: &str| match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}.. ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    };
    match value {
        Value::String(text) => short(text).into(),
        Value::Array(_) => {
            if let Ok(Some(items)) = file.find_strings(key) {
                return list(items.len(), items.take(SHOWN).map(|text| short(text).into()));
            }
            if let Ok(Some(items)) = file.find_integers(key) {
                return list(items.len(), items.take(SHOWN).map(Json::from));
            }
            match file.find_floats(key) {
                Ok(Some(items)) => list(items.len(), items.take(SHOWN).map(Json::from)),
                _ => "a list".into(),
            }
        }
        Value::Bool(flag) => flag.into(),
        Value::F32(x) => x.into(),
        Value::F64(x) => x.into(),
        Value::U8(n) => n.into(),
        Value::I8(n) => n.into(),
        Value::U16(n) => n.into(),
        Value::I16(n) => n.into(),
        Value::U32(n) => n.into(),
        Value::I32(n) => n.into(),
        Value::U64(n) => n.into(),
        Value::I64(n) => n.into(),
    }
}

/// Returns the first items of a list of `len`.
fn list(len: usize, first: impl Iterator<Item = Json>) -> Json {
    let mut items: Vec<Json> = first.collect();
    if items.len() < len {
        items.push(format!(".. {len} in all").into());
    }
    Json::Array(items)
}

/// Returns the report as lines of a name and its value.
fn text(report: &Map<String, Json>) -> String {
    let number = |json: &Json| json.as_u64().unwrap_or(0);
    let mut lines: Vec<(String, String)> = Vec::new();
    for (name, value) in report {
        let shown = match (name.as_str(), value) {
            ("schema", _) => continue,
            ("bytes", value) => units::bytes(number(value)),
            ("parameters" | "active_parameters", value) => millions(number(value)),
            ("tensors", Json::Array(rows)) => {
                let rows = rows.iter().map(|row| {
                    let format = row["format"].as_str().unwrap_or_default();
                    let bytes = units::bytes(number(&row["bytes"]));
                    format!("{} of {format} ({bytes})", row["count"])
                });
                rows.collect::<Vec<_>>().join(", ")
            }
            ("memory", memory) => {
                let bytes = |key: &str| units::bytes(number(&memory[key]));
                match memory["cache"].is_null() {
                    true => format!("weights {}", bytes("weights")),
                    false => format!(
                        "{}: weights {}, cache of {} positions of {} {}",
                        bytes("total"),
                        bytes("weights"),
                        memory["context"],
                        memory["cache_type"].as_str().unwrap_or_default(),
                        bytes("cache")
                    ),
                }
            }
            ("tensor_list", Json::Array(rows)) => {
                lines.push(("tensor list".into(), String::new()));
                for row in rows {
                    let name = row["name"].as_str().unwrap_or_default();
                    let format = row["format"].as_str().unwrap_or_default();
                    let bytes = units::bytes(number(&row["bytes"]));
                    lines.push((format!("  {name}"), format!("{format} {} {bytes}", row["shape"])));
                }
                continue;
            }
            ("metadata", Json::Object(keys)) => {
                lines.push(("metadata".into(), String::new()));
                lines.extend(keys.iter().map(|(key, value)| (format!("  {key}"), plain(value))));
                continue;
            }
            (_, Json::Bool(flag)) => if *flag { "yes" } else { "no" }.to_owned(),
            (_, value) => plain(value),
        };
        lines.push((name.replace('_', " "), shown));
    }
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(40);
    let line = |(name, value): &(String, String)| format!("{name:width$}  {value}");
    let lines = lines.iter().map(|pair| format!("{}\n", line(pair).trim_end()));
    lines.collect()
}

fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Formats a number of parameters: `135 M`, `8.03 B`.
fn millions(count: u64) -> String {
    let millions = count as f64 / 1e6;
    match millions {
        m if m >= 1000.0 => format!("{:.2} B", m / 1000.0),
        m if m >= 100.0 => format!("{m:.0} M"),
        m => format!("{m:.1} M"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_read_well() {
        for (count, want) in
            [(7_300_000, "7.3 M"), (134_515_008, "135 M"), (8_030_000_000, "8.03 B")]
        {
            assert_eq!(millions(count), want);
        }
    }
}
